// Of the headers that CMakeLists.txt has precompiled for the unit tests; nothing else.
