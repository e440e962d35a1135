"""The folder that goes on the job's PYTHONPATH. Nothing here may import hangdoc."""
