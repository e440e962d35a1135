"""The main process gathers everybody's predictions.

With Accelerate, `if accelerator.is_main_process:` is how one writes a file or prints a line once. Gathering
the predictions inside it asks every process to take part in something that only one of them ever enters.
"""

# /// hangdoc
# launch = "accelerate launch --multi_gpu --num_processes 2 --main_process_port 0 --dynamo_backend no"
# outcome = "hang"
# cause = "HD101"
# culprits = [0]
# lines = [29]
# code = ["everyone = accelerator.gather(predictions)"]
# source = "https://github.com/huggingface/accelerate/issues/2785"
# ///

import os

import torch
from accelerate import Accelerator

FIXED = os.environ.get("FIXED") == "1"


def evaluate(accelerator, network, batch):
    with torch.no_grad():
        predictions = network(batch).argmax(dim=-1)
    if accelerator.is_main_process or FIXED:
        everyone = accelerator.gather(predictions)
        accelerator.print(f"{everyone.numel()} predictions, {int(everyone.sum())} positive")
    accelerator.wait_for_everyone()


def main():
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    for _ in range(3):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    evaluate(accelerator, accelerator.unwrap_model(model), torch.ones(8, 4))
    accelerator.end_training()


if __name__ == "__main__":
    main()
