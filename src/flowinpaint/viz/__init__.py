"""Visualisation of fields: colours and contact sheets."""
