"""The scoreboard: the same cases answered by Faulthound, by naive rules and by peers' methods."""
