"""Several engines that answer as one: `EngineHost`s of any kind behind one `EngineHost`.

    hosts.py       the settings -> its members, with the machine dealt out among them
    pool.py        the `EngineHost`: lives of members, catching up those that come back
    engine.py      the `Engine` that callers see: each request to a member, and on to another one; publishing to all
    roster.py      who of them answers, and what all must have loaded
    member.py      one engine, and what is known of it
    affinity.py    a conversation -> the order in which members are asked
    silence.py     notices that an engine has work and says nothing
    proofs.py      what a version scored where it was proved, which a member that joins has to score too

A version can be asked for when every member that answers has loaded it. A member that was away loads and proves what it
missed, and forgets what was to be forgotten, before it gets a request.
"""
