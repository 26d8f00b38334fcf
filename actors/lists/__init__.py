"""Lists of destinations: domains and networks that rules refer to by `list:NAME`.

A list is one read-only file, compiled from its entries (`compiler`) by the process that changes it, and
mapped by every process that looks names or addresses up in it (`compiled`): they share its pages. A new version is a
new file under the same name, so what is mapped stays what it was.
"""
