"""Harbor task directories, the format that most tasks of the field come in, in the order of an attempt.

datasets task_toml directory   a folder that a person names -> what its tasks say
needs                          what a task asks for that boxes here do not give
dockerfile recipe bases exporting placing images      what a task says of its box -> what boxes start from
attempt                        the agent's box, step after step
carrying verifying rewards     what the agent left -> a fresh box with the tests -> rewards
"""
