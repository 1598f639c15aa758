//! A small model as an ONNX file, which is a message of protocol buffers: fields by number, and messages in them.

/// Returns a model of three convolutions with `width` channels between them, each of which halves the sides. Its
/// output, N x 1 x height / 8 x width / 8, is the probability that a place has little red. The first channel computes
/// it. The others cost time, as those of a trained model would.
pub(crate) fn darkness(width: u64) -> Vec<u8> {
    let noise = |i: u64| (i * 7919 % 101) as f32 / 10_000.0;
    // A channel's weights: those for the first input channel, then for the others, 2 x 2 each.
    let weights = |outputs: u64, inputs: u64, first: &dyn Fn(u64) -> f32| -> Vec<f32> {
        let all = (0..outputs * inputs * 4).map(|i| (i / (inputs * 4), i % (inputs * 4)));
        all.map(|(output, i)| if output == 0 { first(i) } else { noise(output * 31 + i) }).collect()
    };
    // A first channel of its own: 1 - red, then means, then a steep step at 0.32.
    let only = |value: f32| move |i: u64| if i < 4 { value } else { 0.0 };
    let bias = |outputs: u64, first: f32| {
        (0..outputs).map(move |output| if output == 0 { first } else { 0.1 }).collect::<Vec<_>>()
    };
    let tensors = [
        tensor("w1", &[width, 3, 2, 2], &weights(width, 3, &only(-0.25))),
        tensor("b1", &[width], &bias(width, 1.0)),
        tensor("w2", &[width, width, 2, 2], &weights(width, width, &only(0.25))),
        tensor("b2", &[width], &bias(width, 0.0)),
        tensor("w3", &[1, width, 2, 2], &weights(1, width, &only(7.5))),
        tensor("b3", &[1], &bias(1, -9.6)),
    ];
    let nodes = [
        convolution(["tiles", "w1", "b1"], "c1"),
        node("Relu", &["c1"], "r1", &[]),
        convolution(["r1", "w2", "b2"], "c2"),
        node("Relu", &["c2"], "r2", &[]),
        convolution(["r2", "w3", "b3"], "c3"),
        node("Sigmoid", &["c3"], "probability", &[]),
    ];
    let mut graph: Vec<u8> = nodes.iter().flat_map(|node| bytes(1, node)).collect();
    graph.extend(bytes(2, b"darkness"));
    graph.extend(tensors.iter().flat_map(|tensor| bytes(5, tensor)));
    graph.extend(bytes(11, &value("tiles", "3")));
    graph.extend(bytes(12, &value("probability", "1")));
    let opset = number(2, 13);
    [number(1, 8), bytes(2, b"gangline"), bytes(7, &graph), bytes(8, &opset)].concat()
}

fn convolution(inputs: [&str; 3], output: &str) -> Vec<u8> {
    // AttributeProto: name 1, ints 8, type 20, of which 7 is a list of integers.
    let pair = |name: &str| {
        [bytes(1, name.as_bytes()), number(8, 2), number(8, 2), number(20, 7)].concat()
    };
    node("Conv", &inputs, output, &[pair("kernel_shape"), pair("strides")])
}

/// NodeProto: input 1, output 2, op_type 4, attribute 5.
fn node(kind: &str, inputs: &[&str], output: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut node: Vec<u8> = inputs.iter().flat_map(|input| bytes(1, input.as_bytes())).collect();
    node.extend([bytes(2, output.as_bytes()), bytes(4, kind.as_bytes())].concat());
    node.extend(attributes.iter().flat_map(|attribute| bytes(5, attribute)));
    node
}

/// TensorProto: dims 1, data_type 2, of which 1 is f32, name 8, raw_data 9.
fn tensor(name: &str, shape: &[u64], values: &[f32]) -> Vec<u8> {
    let mut tensor: Vec<u8> = shape.iter().flat_map(|&length| number(1, length)).collect();
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor.extend([number(2, 1), bytes(8, name.as_bytes()), bytes(9, &raw)].concat());
    tensor
}

/// ValueInfoProto: name 1, type 2; TypeProto: tensor 1; its elem_type 1, shape 2; dim 1; its value 1 or name 2.
fn value(name: &str, channels: &str) -> Vec<u8> {
    let named = |length: &str| bytes(1, &bytes(2, length.as_bytes()));
    let channels = bytes(1, &number(1, channels.parse().expect("it is a digit")));
    let sides = [named(&format!("{name} high")), named(&format!("{name} wide"))].concat();
    let shape = [named("N"), channels, sides].concat();
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
fn varint(mut value: u64) -> Vec<u8> {
    let mut varint = Vec::new();
    while value >= 128 {
        varint.push(value as u8 | 128);
        value >>= 7;
    }
    varint.push(value as u8);
    varint
}
