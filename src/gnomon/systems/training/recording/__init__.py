"""Recording a training script: launch, step detection, the folder written."""
