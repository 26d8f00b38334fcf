"""The kinds of objects: one module or package for each, which declares it and has its actions (`api.engine`).

`kinds` has the table of them. A kind imports the engine and what it refers to, never another one's insides.
"""
