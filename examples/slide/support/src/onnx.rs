//! A small model as an ONNX file, which is a message of protocol buffers: fields by number, and messages in them.

/// Returns a model of three convolutions with `width` channels between them, each of which halves the sides. Its
/// output, N x 1 x height / 8 x width / 8, is the probability that a place has little red. The first channel computes
/// it. The others cost time, as those of a trained model would.
pub(crate) fn darkness(width: u64) -> Vec<u8> {
    let ends = ["tiles", "half", "quarter", "probability"];
    // Inputs and outputs, and the weight and bias of the first channel: 1 - red, then means, then a steep step at 0.32.
    let layers = [(3, width, -0.25, 1.0), (width, width, 0.25, 0.0), (width, 1, 7.5, -9.6)];
    let mut graph = bytes(2, b"darkness");
    for (layer, (inputs, outputs, weight, bias)) in layers.into_iter().enumerate() {
        let weights =
            (0..outputs * inputs * 4).map(|i| match (i / (inputs * 4), i % (inputs * 4)) {
                (0, 0..4) => weight,
                (0, _) => 0.0,
                (output, i) => ((output * 31 + i) * 7919 % 101) as f32 / 10_000.0,
            });
        let biases = (0..outputs).map(|output| if output == 0 { bias } else { 0.1 });
        let [w, b, sum] = ["w", "b", "sum"].map(|name| format!("{name}{layer}"));
        graph.extend(bytes(5, &tensor(&w, &[outputs, inputs, 2, 2], weights)));
        graph.extend(bytes(5, &tensor(&b, &[outputs], biases)));
        graph.extend(bytes(
            1,
            &node("Conv", &[ends[layer], &w, &b], &sum, &["kernel_shape", "strides"]),
        ));
        let kind = if layer < 2 { "Relu" } else { "Sigmoid" };
        graph.extend(bytes(1, &node(kind, &[&sum], ends[layer + 1], &[])));
    }
    graph.extend(bytes(11, &value(ends[0], 3)));
    graph.extend(bytes(12, &value(ends[3], 1)));
    let opset = number(2, 13);
    [number(1, 8), bytes(2, b"gangline"), bytes(7, &graph), bytes(8, &opset)].concat()
}

/// NodeProto: input 1, output 2, op_type 4, attribute 5; AttributeProto: name 1, ints 8, type 20, of which 7 is a list
/// of integers. Each attribute is 2 x 2.
fn node(kind: &str, inputs: &[&str], output: &str, attributes: &[&str]) -> Vec<u8> {
    let mut node: Vec<u8> = inputs.iter().flat_map(|input| bytes(1, input.as_bytes())).collect();
    node.extend([bytes(2, output.as_bytes()), bytes(4, kind.as_bytes())].concat());
    for name in attributes {
        let pair = [bytes(1, name.as_bytes()), number(8, 2), number(8, 2), number(20, 7)];
        node.extend(bytes(5, &pair.concat()));
    }
    node
}

/// TensorProto: dims 1, data_type 2, of which 1 is f32, name 8, raw_data 9.
fn tensor(name: &str, shape: &[u64], values: impl Iterator<Item = f32>) -> Vec<u8> {
    let mut tensor: Vec<u8> = shape.iter().flat_map(|&length| number(1, length)).collect();
    let raw: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    tensor.extend([number(2, 1), bytes(8, name.as_bytes()), bytes(9, &raw)].concat());
    tensor
}

/// ValueInfoProto: name 1, type 2; TypeProto: tensor 1; its elem_type 1, shape 2; dim 1; its value 1 or name 2.
fn value(name: &str, channels: u64) -> Vec<u8> {
    let free = |length: &str| bytes(1, &bytes(2, format!("{length} of {name}").as_bytes()));
    let channels = bytes(1, &number(1, channels));
    let shape = [bytes(1, &bytes(2, b"N")), channels, free("height"), free("width")].concat();
    let tensor = [number(1, 1), bytes(2, &shape)].concat();
    [bytes(1, name.as_bytes()), bytes(2, &bytes(1, &tensor))].concat()
}

/// A field with a length: text, bytes or a message.
fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// Seven bits a byte, the lowest first; all but the last have the eighth.
fn varint(value: u64) -> Vec<u8> {
    match value {
        0..128 => vec![value as u8],
        _ => [vec![value as u8 | 128], varint(value >> 7)].concat(),
    }
}
