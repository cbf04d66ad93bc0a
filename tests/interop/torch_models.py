"""Models of PyTorch as people write them, from scratch: what `nb.from_torch` must take."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head, block_size, flash=False):
        super().__init__()
        assert n_embd % n_head == 0
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.0), nn.Dropout(0.0)
        self.n_head, self.n_embd, self.flash, self.dropout = n_head, n_embd, flash, 0.0
        if not flash:
            mask = torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size)
            self.register_buffer("bias", mask)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        if self.flash:
            rate = self.dropout if self.training else 0
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=None, dropout_p=rate, is_causal=True
            )
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = self.attn_dropout(F.softmax(att, dim=-1))
            y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class FusedLayerNorm(nn.Module):
    def __init__(self, ndim, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(ndim))
        self.bias = nn.Parameter(torch.rand(ndim)) if bias else None

    def forward(self, input):
        return F.layer_norm(input, self.weight.shape, self.weight, self.bias, 1e-5)


class GPTBlock(nn.Module):
    def __init__(self, n_embd, n_head, block_size, flash):
        super().__init__()
        self.ln_1, self.ln_2 = FusedLayerNorm(n_embd, bias=False), FusedLayerNorm(n_embd, bias=True)
        self.attn = CausalSelfAttention(n_embd, n_head, block_size, flash)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(n_embd, 4 * n_embd), "c_proj": nn.Linear(4 * n_embd, n_embd)}
        )
        self.gelu = nn.GELU()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](self.gelu(self.mlp["c_fc"](self.ln_2(x))))


class NanoGPT(nn.Module):
    """As nanoGPT: tied weights, positions made in the forward, a loss where targets are given, an
    assertion.
    """

    def __init__(self, vocab_size=13, block_size=8, n_embd=16, n_head=2):
        super().__init__()
        self.block_size = block_size
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab_size, n_embd),
                "wpe": nn.Embedding(block_size, n_embd),
                "h": nn.ModuleList(
                    [GPTBlock(n_embd, n_head, block_size, flash) for flash in (False, True)]
                ),
                "ln_f": FusedLayerNorm(n_embd, bias=True),
            }
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        device = idx.device
        _, t = idx.size()
        assert t <= self.block_size, f"Cannot forward sequence of length {t}"
        pos = torch.arange(0, t, dtype=torch.long, device=device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is not None:
            logits = self.lm_head(x)
            loss = F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            )
        else:
            logits, loss = self.lm_head(x[:, [-1], :]), None
        return logits, loss


class LlamaRMSNorm(nn.Module):
    def __init__(self, hidden, eps=1e-6):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.rand(hidden)), eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


class LlamaRotaryEmbedding(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.register_buffer(
            "inv_freq", 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim)), persistent=False
        )

    @torch.no_grad()
    def forward(self, x, position_ids):
        inv_freq = self.inv_freq[None, :, None].float().expand(position_ids.shape[0], -1, 1)
        freqs = (inv_freq @ position_ids[:, None, :].float()).transpose(1, 2)
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos().to(dtype=x.dtype), emb.sin().to(dtype=x.dtype)


class LlamaAttention(nn.Module):
    def __init__(self, hidden, heads, kv_heads):
        super().__init__()
        self.head_dim, self.groups = hidden // heads, heads // kv_heads
        self.q_proj = nn.Linear(hidden, heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def repeat_kv(self, hidden_states, n_rep):
        batch, kv_heads, slen, head_dim = hidden_states.shape
        if n_rep == 1:
            return hidden_states
        hidden_states = hidden_states[:, :, None, :, :].expand(
            batch, kv_heads, n_rep, slen, head_dim
        )
        return hidden_states.reshape(batch, kv_heads * n_rep, slen, head_dim)

    def forward(self, hidden_states, position_embeddings, attention_mask=None):
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, self.head_dim)
        q = self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        k = self.k_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        v = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        cos, sin = position_embeddings
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        q, k = (q * cos) + (rotate_half(q) * sin), (k * cos) + (rotate_half(k) * sin)
        k, v = self.repeat_kv(k, self.groups), self.repeat_kv(v, self.groups)
        weights = torch.matmul(q, k.transpose(2, 3)) * self.head_dim**-0.5
        if attention_mask is not None:
            weights = weights + attention_mask[:, :, :, : k.shape[-2]]
        weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
        out = torch.matmul(weights, v).transpose(1, 2).contiguous()
        return self.o_proj(out.reshape(*input_shape, -1).contiguous())


class LlamaMLP(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.gate_proj, self.up_proj = (
            nn.Linear(hidden, 2 * hidden, bias=False),
            nn.Linear(hidden, 2 * hidden, bias=False),
        )
        self.down_proj, self.act_fn = nn.Linear(2 * hidden, hidden, bias=False), nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Llama(nn.Module):
    def __init__(self, hidden=16, heads=4, kv_heads=2):
        super().__init__()
        self.embed_tokens, self.rotary_emb = (
            nn.Embedding(20, hidden),
            LlamaRotaryEmbedding(hidden // heads),
        )
        self.self_attn, self.mlp = LlamaAttention(hidden, heads, kv_heads), LlamaMLP(hidden)
        self.input_layernorm, self.post_attention_layernorm = (
            LlamaRMSNorm(hidden),
            LlamaRMSNorm(hidden),
        )
        self.norm, self.lm_head = LlamaRMSNorm(hidden), nn.Linear(hidden, 20, bias=False)

    def forward(self, input_ids):
        hidden_states = self.embed_tokens(input_ids)
        T = input_ids.shape[1]
        position_ids = torch.arange(T, device=input_ids.device).unsqueeze(0)
        causal = torch.full((T, T), float("-inf"), device=input_ids.device)
        causal = torch.triu(causal, diagonal=1)[None, None]
        positions = self.rotary_emb(hidden_states, position_ids)
        hidden_states = hidden_states + self.self_attn(
            self.input_layernorm(hidden_states), positions, causal
        )
        hidden_states = hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))
        return self.lm_head(self.norm(hidden_states))


class DoubleConv(nn.Module):
    def __init__(self, inp, out):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(inp, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, inp, out, bilinear):
        super().__init__()
        self.bilinear = bilinear
        self.up = nn.Identity() if bilinear else nn.ConvTranspose2d(inp, inp // 2, 2, stride=2)
        self.conv = DoubleConv(inp + inp // 2 if bilinear else inp, out)

    def forward(self, x1, x2):
        if self.bilinear:
            x1 = F.interpolate(x1, scale_factor=2, mode="bilinear", align_corners=True)
        x1 = self.up(x1)
        diff_y, diff_x = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [diff_x // 2, diff_x - diff_x // 2, diff_y // 2, diff_y - diff_y // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.inc, self.down1 = (
            DoubleConv(1, width),
            nn.Sequential(nn.MaxPool2d(2), DoubleConv(width, 2 * width)),
        )
        self.down2 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(2 * width, 4 * width))
        self.up1, self.up2 = (
            Up(4 * width, 2 * width, bilinear=False),
            Up(2 * width, width, bilinear=True),
        )
        self.outc = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x = self.up1(x3, x2)
        x = self.up2(x, x1)
        return F.interpolate(self.outc(x), size=(6, 7), mode="nearest")
