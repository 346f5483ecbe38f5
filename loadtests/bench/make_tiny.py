"""In the engine's environment: make_tiny.py SMOLLM2 FOLDER writes a tiny Llama, of random weights and SmolLM2's words.

It has four heads, which two ranks can share; SmolLM2's nine they cannot.
"""

import shutil
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

source, target = sys.argv[1:]
config = LlamaConfig(
    vocab_size=49152,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=1024,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=2,
)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(target)
for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
    shutil.copy(f"{source}/{name}", target)
