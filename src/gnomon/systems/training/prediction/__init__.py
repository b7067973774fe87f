"""Prediction: the step and the memory of training configurations nobody ran.

How a prediction is made, a file a step:

- `configuration`: what is trained and how it is spread over GPUs;
- from a trace: `units` (kernels with their operators), `repeats` and `cut` (layers, ends,
  optimiser), `infer` (the configuration), `growth` (what each size stands for), `collectives`,
  `extract`;
- from sizes alone: `style` (how the code runs it), `transformer` (its operators), `operators`
  (their times);
- both give a `program`: parts that repeat. `retime` sizes a recorded one anew;
- `schedule`, `placement`, `tape`, `blocks`, `assemble`: parts put together for a layout;
- `source`: where parts come from, either way; `memory`: the peak of a rank; `predict`: all of it,
  with a range and a waterfall; `search`: many layouts; `predict_result`, `search_result`.

After Lumos (arXiv 2504.09307, section 4), with open models, tensor parallelism, memory and ranges.
"""
