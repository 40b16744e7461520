"""How to speak to a cluster: where it is, its types and limits, what its errors mean. Knows no epochs."""
