"""Use an encoder as a feature extractor in scikit-learn; here it is untrained, as a baseline."""

from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import graphlog
from graphlog.sklearn import GraphEmbedder

graphs = graphlog.read_molecules("nci5k", limit=200)
smiles = graphs.texts(range(len(graphs)))
has_nitrogen = ["N" in s for s in smiles]

model = make_pipeline(GraphEmbedder("random"), StandardScaler(), LogisticRegression(max_iter=1000))
scores = cross_val_score(model, smiles, has_nitrogen, cv=3, scoring="roc_auc")
print(f"ROC-AUC of finding nitrogen: {scores.mean():.2f} +/- {scores.std():.2f}")
