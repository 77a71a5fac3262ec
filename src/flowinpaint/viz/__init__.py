"""Pictures of fields: colours, contact sheets."""
