"""Rooms on lease: kept here, served over HTTP, and reached from elsewhere as if they were here.

rooms     tasks -> rooms on lease on this machine: capacity, time to live, and the end of each
tenancy   one lease: its room, and the calls to it, one after another
answers   a key -> one run of a call, and the same answer whenever it is asked for again
wire      what goes over HTTP, and how an error travels
http      the server
client    an environment server elsewhere
pool      several as one
leased    a lease -> a `Room`, which is all that those who attempt tasks see
"""
