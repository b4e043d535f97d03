"""Which matrix is stored against which: MST, SPT, LAST, MT, PT and `best`, under budgets."""
