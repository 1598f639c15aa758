//! ONNX files: a graph of nodes and weights, written as protobuf by hand.

use std::collections::BTreeMap;

use candle_core::Tensor;

/// A graph with the one input `x` of floats, and one output.
#[derive(Default)]
pub(crate) struct Graph {
    nodes: Message,
    weights: Message,
    names: usize,
}

/// The fields of a message of protobuf.
#[derive(Default)]
struct Message(Vec<u8>);

const FLOAT: u64 = 1;
const INT64: u64 = 7;

impl Graph {
    pub(crate) fn new(weights: &BTreeMap<String, Tensor>) -> candle_core::Result<Self> {
        let mut graph = Graph::default();
        for (name, weight) in weights {
            let numbers = weight.flatten_all()?.to_vec1::<f32>()?;
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            graph.weight(name, weight.dims(), FLOAT, &bytes);
        }
        Ok(graph)
    }

    /// Adds a node and returns the name of its output. An attribute of one number is no list.
    pub(crate) fn node(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: &[(&str, &[i64])],
    ) -> String {
        let output = self.name();
        let mut node = Message::default();
        inputs.iter().for_each(|input| node.text(1, input));
        node.text(2, &output);
        node.text(4, op);
        for (name, values) in attributes {
            let mut attribute = Message::default();
            attribute.text(1, name);
            let (field, kind) = if values.len() == 1 { (3, 2) } else { (8, 7) };
            values.iter().for_each(|&value| attribute.number(field, value as u64));
            attribute.number(20, kind);
            node.message(5, &attribute);
        }
        self.nodes.message(1, &node);
        output
    }

    /// Adds `x * weight + bias` for any number of dimensions.
    pub(crate) fn linear(&mut self, x: &str, layer: &str) -> String {
        let weight = self.node("Transpose", &[&format!("{layer}.weight")], &[("perm", &[1, 0])]);
        let product = self.node("MatMul", &[x, &weight], &[]);
        self.node("Add", &[&product, &format!("{layer}.bias")], &[])
    }

    pub(crate) fn scalar(&mut self, value: f32) -> String {
        let name = self.name();
        self.weight(&name, &[], FLOAT, &value.to_le_bytes());
        name
    }

    pub(crate) fn reshape(&mut self, x: &str, shape: &[i64]) -> String {
        let name = self.name();
        let bytes: Vec<u8> = shape.iter().flat_map(|size| size.to_le_bytes()).collect();
        self.weight(&name, &[shape.len()], INT64, &bytes);
        self.node("Reshape", &[x, &name], &[])
    }

    /// The bytes of the file. The first dimension of the input is open.
    pub(crate) fn finish(self, input: &[usize], output: &str) -> Vec<u8> {
        let mut graph = self.nodes;
        graph.text(2, "network");
        graph.0.extend(self.weights.0);
        graph.message(11, &value("x", Some(input)));
        graph.message(12, &value(output, None));
        let mut operators = Message::default();
        operators.number(2, 17);
        let mut model = Message::default();
        model.number(1, 8);
        model.message(7, &graph);
        model.message(8, &operators);
        model.0
    }

    fn weight(&mut self, name: &str, shape: &[usize], kind: u64, bytes: &[u8]) {
        let mut weight = Message::default();
        shape.iter().for_each(|&size| weight.number(1, size as u64));
        weight.number(2, kind);
        weight.text(8, name);
        weight.bytes(9, bytes);
        self.weights.message(5, &weight);
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("n{}", self.names)
    }
}

impl Message {
    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// The description of an input or output.
fn value(name: &str, shape: Option<&[usize]>) -> Message {
    let (mut value, mut kind, mut tensor) = <(Message, Message, Message)>::default();
    tensor.number(1, FLOAT);
    if let Some(shape) = shape {
        let mut dimensions = Message::default();
        for (at, &size) in shape.iter().enumerate() {
            let mut dimension = Message::default();
            match at {
                0 => dimension.text(2, "n"),
                _ => dimension.number(1, size as u64),
            }
            dimensions.message(1, &dimension);
        }
        tensor.message(2, &dimensions);
    }
    kind.message(1, &tensor);
    value.text(1, name);
    value.message(2, &kind);
    value
}
