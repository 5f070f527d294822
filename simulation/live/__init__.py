"""Jobs as the agents of their nodes would report them: days of them, without a process, a node or a clock.

A ``LiveJob`` is what happens; an ``Agent`` reports of one node what its collectors would read, at their intervals; a
``Fleet`` yields the batches of all agents in the order in which a service receives them, and answers what it is asked. Nothing
here knows the engine.
"""
