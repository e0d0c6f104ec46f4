"""How scores are taken where graphs are few: classes, k-fold cross-validation, and the features it is compared with."""
