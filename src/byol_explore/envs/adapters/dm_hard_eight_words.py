"""What an agent is told in each task. The original tells nothing, so that it is the same as in `hard-eight:TASK`."""

import numpy as np

_TABLE = {
    "drawbridge": "bring keys to the sensors cross the bridges eat the large apple",
    "remember-sensor": "fetch the crate with the colour of the sensor avoid the strips",
    "navigate-cubes": "dig through the cubes climb the stairs eat the large apple",
    "wall-sensor": "touch the sensor with the thing of its colour",
    "wall-sensor-stack": "stack the crates at the sensor so that it stays touched",
    "push-blocks": "push the block with the colour of the sensor into the recess",
    "throw-across": "throw one key across the gap carry the other to the sensor",
    "baseball": "knock the ball down with the bat bring it to the sensor",
}
WORDS = tuple(dict.fromkeys(word for instruction in _TABLE.values() for word in instruction.split()))
LONGEST = max(len(instruction.split()) for instruction in _TABLE.values())  # instruction, in words


def instructions() -> np.ndarray:
    """[tasks, LONGEST] int32, numbers of words from 1 on; 0 fills up."""
    numbers = {word: number for number, word in enumerate(WORDS, start=1)}
    rows = [[numbers[word] for word in instruction.split()] for instruction in _TABLE.values()]
    return np.array([row + [0] * (LONGEST - len(row)) for row in rows], np.int32)
