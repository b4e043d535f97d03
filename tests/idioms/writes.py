"""Writes through views, slices and masks, and reads before and after them."""

# People's code as it is written: what torch's own types say of it is not the point.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator, call-overload"

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from tests.idioms.table import body, floats, idiom

S = "writes"


@body(S, 6)
def column_set(y: Tensor) -> Tensor:
    y[:, 0] = -100
    return y


@body(S, 6)
def columns_added(y: Tensor) -> Tensor:
    y[:, :2] += 1
    return y * 2


@body(S, 6)
def buffer_filled(y: Tensor) -> Tensor:
    buf = torch.zeros(y.shape[0], 10)
    buf[:, 2:8] = y
    return buf


@body(S, 6)
def buffer_filled_twice(y: Tensor) -> Tensor:
    buf = y.new_zeros(y.size(0), 12)
    buf[:, :6] = y
    buf[:, 6:] = y.sigmoid()
    return buf.tanh()


@body(S, 6)
def view_added(y: Tensor) -> Tensor:
    y.view(-1, 2, 3).add_(1)
    return y


@body(S, 6)
def view_scaled_later(y: Tensor) -> Tensor:
    z = y.view(-1, 3, 2)
    y.mul_(2)
    return z + z.relu()


@body(S, 6)
def relu_on_slice(y: Tensor) -> Tensor:
    torch.relu_(y[:, :3])
    return y


@body(S, 6)
def relu_inplace_on_slice(y: Tensor) -> Tensor:
    F.relu(y[:, 3:], inplace=True)
    return y.exp()


@body(S, 3, 8)
def yolo_sigmoid(y: Tensor) -> Tensor:
    y[..., 4:] = y[..., 4:].sigmoid()
    return y


@body(S, 3, 8)
def yolo_boxes(y: Tensor) -> Tensor:
    y[..., 0:2] = (y[..., 0:2].sigmoid() * 2 - 0.5) * 4
    y[..., 2:4] = (y[..., 2:4].sigmoid() * 2) ** 2
    return y.view(y.shape[0], -1, 4)


@body(S, 4, 6)
def through_transpose(y: Tensor) -> Tensor:
    y.transpose(1, 2)[:, 0] = 3
    return y


@body(S, 4, 6)
def through_permute(y: Tensor) -> Tensor:
    y.permute(2, 0, 1)[1:3].mul_(-2)
    return y


@body(S, 4, 6)
def through_unbind(y: Tensor) -> Tensor:
    first, *_, last = y.unbind(1)
    first.add_(last)
    last.zero_()
    return y


@body(S, 6)
def through_chunk(y: Tensor) -> Tensor:
    a, b = y.chunk(2, dim=1)
    a.mul_(b.sigmoid())
    return y


@body(S, 6)
def through_split(y: Tensor) -> Tensor:
    a, b, _ = torch.split(y, [1, 2, 3], dim=1)
    a.fill_(7)
    b += 1
    return y


@body(S, 6)
def through_select(y: Tensor) -> Tensor:
    y.select(1, 2).copy_(y.sum(1))
    return y


@body(S, 6)
def through_narrow(y: Tensor) -> Tensor:
    y.narrow(1, 1, 3).clamp_(-0.1, 0.1)
    return y


@body(S, 5, 5)
def through_diagonal(y: Tensor) -> Tensor:
    y.diagonal(dim1=1, dim2=2).fill_(1)
    return y.softmax(-1)


@body(S, 6)
def through_expand_clone(y: Tensor) -> Tensor:
    z = y.unsqueeze(1).expand(-1, 3, -1).clone()
    z[:, 1] = 0
    return z + y.unsqueeze(1)


@body(S, 8)
def step_slice(y: Tensor) -> Tensor:
    y[:, ::2] = y[:, 1::2] * 3
    return y


@body(S, 8)
def interleaved(y: Tensor) -> Tensor:
    out = torch.empty_like(y)
    out[:, 0::2] = y[:, :4]
    out[:, 1::2] = y[:, 4:]
    return out


@body(S, 8)
def rotary_halves(y: Tensor) -> Tensor:
    out = torch.zeros_like(y)
    out[..., :4], out[..., 4:] = -y[..., 4:], y[..., :4]
    return y * 0.6 + out * 0.8


@body(S, 6)
def boolean_mask_set(y: Tensor) -> Tensor:
    y[y < 0] = 0.25
    return y


@body(S, 6)
def masked_fill_on_view(y: Tensor) -> Tensor:
    y[:, 1:4].masked_fill_(y[:, :3] > 0, -5.0)
    return y


@body(S, 6)
def index_put_rows(y: Tensor) -> Tensor:
    y[:, [0, 2, 5]] = -1.0
    return y


@body(S, 6)
def index_put_added(y: Tensor) -> Tensor:
    y.index_put_((torch.tensor([0]), torch.tensor([1])), torch.tensor(9.0), accumulate=True)
    return y


@body(S, 6)
def scatter_in_place(y: Tensor) -> Tensor:
    out = torch.zeros_like(y)
    out.scatter_(1, y.argmax(1, keepdim=True), 1.0)
    return out * y


@body(S, 6)
def scatter_added(y: Tensor) -> Tensor:
    places = torch.tensor([0, 1, 1, 2, 2, 2]).expand(y.shape[0], -1)
    return torch.zeros(y.shape[0], 3).scatter_add_(1, places, y)


@body(S, 6)
def index_added(y: Tensor) -> Tensor:
    return torch.zeros(y.shape[0], 3).index_add_(1, torch.tensor([0, 1, 2, 0, 1, 2]), y)


@body(S, 6)
def copied_into(y: Tensor) -> Tensor:
    out = torch.empty(y.shape[0], 2, 6)
    out[:, 0].copy_(y)
    out[:, 1].copy_(y.flip(1))
    return out


@body(S, 6)
def zeroed(y: Tensor) -> Tensor:
    z = y + 1
    y[:, 3].zero_()
    return y * z


@body(S, 6)
def swapped_slices(y: Tensor) -> Tensor:
    y[:, :3], y[:, 3:] = y[:, 3:].clone(), y[:, :3].clone()
    return y


@body(S, 6)
def earlier_view_read(y: Tensor) -> Tensor:
    head = y[:, :2]
    y[:, 1] = 5
    return head.sum(1, keepdim=True) + y


@body(S, 6)
def earlier_copy_read(y: Tensor) -> Tensor:
    head = y[:, :2].clone()
    y[:, :2] = 5
    return torch.cat([head, y], 1)


@idiom(S, floats(6))
class InputWritten(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x[:, 0] = 0
        x += 1
        return self.fc(x)


@idiom(S, floats(6))
class InputWrittenAfterRead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        before = self.fc(x)
        x.mul_(2)
        return before + x


@body(S, 4, 6)
def in_a_loop(y: Tensor) -> Tensor:
    for place in range(1, 4):
        y[:, place] = y[:, place] + 0.5 * y[:, place - 1]
    return y


@body(S, 6)
def grown_in_a_loop(y: Tensor) -> Tensor:
    out = torch.zeros(y.shape[0], 4, 6)
    state = torch.zeros_like(y)
    for place in range(4):
        state = torch.tanh(y + state)
        out[:, place, :] = state
    return out


@body(S, 6)
def out_argument(y: Tensor) -> Tensor:
    out = torch.empty_like(y)
    torch.mul(y, 3, out=out)
    return out + y


@body(S, 6)
def out_argument_of_a_read_value(y: Tensor) -> Tensor:
    z = y.relu()
    torch.add(y, 1, out=y)
    return z + y


@body(S, 6)
def setitem_of_row_by_tensor(y: Tensor) -> Tensor:
    y[:, torch.tensor(2)] = 1.5
    return y


@body(S, 2, 6)
def reversed_write(y: Tensor) -> Tensor:
    a = y[:, 0]
    b = y[:, 1]
    b.add_(a)
    a.sub_(b)
    return torch.cat([a, b], 1)


@body(S, 6)
def add_through_flatten(y: Tensor) -> Tensor:
    z = y.view(-1, 2, 3)
    z.flatten(1).add_(1)
    return z


@body(S, 6)
def write_to_a_reshape(y: Tensor) -> Tensor:
    z = y.reshape(-1, 3, 2)
    z[:, :, 0] = 0
    return y.sum(1, keepdim=True) + z.flatten(1)


@body(S, 3, 4, 4)
def borders_set(y: Tensor) -> Tensor:
    y[:, :, 0, :] = 0
    y[:, :, -1, :] = 0
    y[:, :, :, [0, -1]] = 0
    return y


@body(S, 8, 4, 4)
def temporal_shift(y: Tensor) -> Tensor:
    out = torch.zeros_like(y)
    out[:, :2, :-1] = y[:, :2, 1:]
    out[:, 2:4, 1:] = y[:, 2:4, :-1]
    out[:, 4:] = y[:, 4:]
    return out


@body(S, 6)
def accumulated_into_output(y: Tensor) -> Tensor:
    out = torch.zeros_like(y)
    for scale in (1.0, 0.5, 0.25):
        out += scale * y.sin()
        out.mul_(1.5)
    return out


@body(S, 6)
def where_inplace_twice(y: Tensor) -> tuple[Tensor, Tensor]:
    z = y
    z += 1
    w = z[:, 2:]
    w *= 2
    return y, z


@body(S, 6)
def data_written(y: Tensor) -> Tensor:
    y.data[:, 0] = 2
    return y + 1


@body(S, 6)
def detached_written(y: Tensor) -> Tensor:
    with torch.no_grad():
        y.detach()[:, :2].mul_(3)
    return y + 1


@body(S, 6)
def unsqueeze_in_place(y: Tensor) -> Tensor:
    z = y + 0
    z.unsqueeze_(1)
    z.add_(1)
    return z.squeeze_(1).t_()


@body(S, 6)
def index_fill_and_copy(y: Tensor) -> Tensor:
    y.index_fill_(1, torch.tensor([0, 3]), -2.0)
    y.index_copy_(1, torch.tensor([1]), torch.ones(y.shape[0], 1))
    return y


@body(S, 6)
def masked_scatter(y: Tensor) -> Tensor:
    return y.masked_scatter(y > 0, torch.arange(float(y.numel())))


@body(S, 5, 5)
def triangle_in_place(y: Tensor) -> Tensor:
    y.tril_()
    y.fill_diagonal_(0) if y.dim() == 2 else y.diagonal(0, 1, 2).zero_()
    return y


@body(S, 4, 6)
def select_of_select(y: Tensor) -> Tensor:
    y[:, 1][:, 2:4][:, 0] = 8
    return y


@body(S, 6)
def lerp_and_addcmul(y: Tensor) -> Tensor:
    z = y.clone()
    z[:, :3].lerp_(y[:, 3:], 0.3)
    z[:, 3:].addcmul_(y[:, :3], y[:, 3:], value=0.5)
    return z


@body(S, 4, 6)
def as_strided_written(y: Tensor) -> Tensor:
    z = y.contiguous()
    z.as_strided((4, 3), (6, 2)).fill_(1)
    return z


@body(S, 6)
def unfold_written(y: Tensor) -> Tensor:
    z = y.clone()
    z.unfold(1, 2, 2)[:, :, 0] = 4
    return z


@body(S, 6)
def conditional_on_size(y: Tensor) -> Tensor:
    if y.shape[1] > 4:
        y[:, 4:] = 0
    return y


@body(S, 6)
def tied_outputs(y: Tensor) -> tuple[Tensor, Tensor]:
    head = y[:, :3]
    head.sigmoid_()
    return head, y


@body(S, 6)
def complex_parts(y: Tensor) -> Tensor:
    z = torch.view_as_complex(y.view(-1, 3, 2).contiguous())
    torch.view_as_real(z)[..., 0] = 1
    return torch.view_as_real(z).flatten(1)


@body(S, 6)
def masked_rows_by_where(y: Tensor) -> Tensor:
    rows = y.sum(1) > 0
    y[rows] = 0
    return y


@body(S, 6)
def masked_rows_added(y: Tensor) -> Tensor:
    rows = y.sum(1) > 0
    y[rows, 1] += 2
    return y
