"""The tool-call track: questions that are answered by calling functions.

environment   sources of tasks -> rooms
options       what a source may say about itself: levels, examples, reward, system prompt
tasks         a task: question, goal, tools, the author's solution
families/     tasks of our own making, by level; task_file, gym: those that people bring
answers       the final text -> is it the answer
rewards       how far an attempt came -> its reward
room          one attempt: the opening, each call, the grade
tools/        tools that a call reaches: our own, a Python interpreter, the functions of a tools JSON
mcp/          Model Context Protocol on the wire: a server in a box, or a URL
resident/     programs that run in boxes, with nothing but Python's standard library
"""
