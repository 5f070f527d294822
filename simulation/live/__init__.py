"""Jobs as the agents of their nodes would report them: days of them, without a process, a node or a clock.

A ``LiveJob`` is what happens; an ``Agent`` tells of one node what the collectors would see of it, at their intervals; a
``Fleet`` yields everybody's batches in the order in which a service receives them, and answers what it is asked. Nothing
here knows the engine.
"""
