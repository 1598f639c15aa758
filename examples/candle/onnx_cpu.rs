//! Compares candle with ONNX Runtime on one thread of the CPU: `cargo bench --features onnx --bench onnx_cpu`
//!
//! Prints a table of processor times. The variable `ORT_DYLIB_PATH` names the library of ONNX Runtime. With
//! `--write FOLDER` it only writes the networks as ONNX files. Both sides have the same weights and inputs, take turns,
//! and must agree.
#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs};

use candle_core::{DType, Device, Tensor};
use candle_nn::{Conv2dConfig, Module, VarBuilder, conv2d, layer_norm, linear, ops};
use gangline::device::candle_threads;
use gangline::{Devices, OrderedRunner, Result, each};
use ort::session::Session;
use ort::value::TensorRef;

use graph::Graph;
use rng::Rng;

#[path = "common/graph.rs"]
mod graph;
#[path = "common/rng.rs"]
mod rng;

const ROUNDS: usize = 31;
/// The time of one side's turn.
const TURN: Duration = Duration::from_millis(20);

const WIDTH: usize = 128;
const HEADS: usize = 2;
const TOKENS: usize = 64;

#[derive(Clone, Copy, Debug)]
enum Network {
    /// 784 values, two layers of 256, and 10 values.
    Mlp,
    /// Three convolutions and a layer, on images of 32 x 32.
    Conv,
    /// One layer of BERT-tiny: width 128, 2 heads, 64 tokens.
    Transformer,
}

type Forward = Box<dyn Fn(&Tensor) -> candle_core::Result<Tensor>>;

impl Network {
    const ALL: [Network; 3] = [Network::Mlp, Network::Conv, Network::Transformer];

    /// The shape of a batch of inputs.
    fn shape(self, batch: usize) -> Vec<usize> {
        match self {
            Network::Mlp => vec![batch, 784],
            Network::Conv => vec![batch, 3, 32, 32],
            Network::Transformer => vec![batch, TOKENS, WIDTH],
        }
    }

    fn weights(self) -> candle_core::Result<BTreeMap<String, Tensor>> {
        let shapes: &[(&str, &[usize])] = match self {
            Network::Mlp => &[("a", &[256, 784]), ("b", &[256, 256]), ("c", &[10, 256])],
            Network::Conv => &[
                ("a", &[16, 3, 3, 3]),
                ("b", &[32, 16, 3, 3]),
                ("c", &[64, 32, 3, 3]),
                ("d", &[10, 1024]),
            ],
            Network::Transformer => &[
                ("query", &[WIDTH, WIDTH]),
                ("key", &[WIDTH, WIDTH]),
                ("value", &[WIDTH, WIDTH]),
                ("out", &[WIDTH, WIDTH]),
                ("norm", &[WIDTH]),
                ("up", &[4 * WIDTH, WIDTH]),
                ("down", &[WIDTH, 4 * WIDTH]),
                ("end", &[WIDTH]),
            ],
        };
        let mut rng = Rng::seeded(1);
        let mut weights = BTreeMap::new();
        for (name, shape) in shapes {
            weights.insert(format!("{name}.weight"), rng.tensor(0.1, *shape)?);
            weights.insert(format!("{name}.bias"), rng.tensor(0.1, shape[0])?);
        }
        Ok(weights)
    }

    fn in_candle(self) -> candle_core::Result<Forward> {
        let weights = self.weights()?.into_iter().collect();
        let weights = VarBuilder::from_tensors(weights, DType::F32, &Device::Cpu);
        match self {
            Network::Mlp => mlp(&weights),
            Network::Conv => conv(&weights),
            Network::Transformer => transformer(&weights),
        }
    }

    /// The bytes of the network as an ONNX file.
    fn in_onnx(self) -> candle_core::Result<Vec<u8>> {
        let mut graph = Graph::new(&self.weights()?)?;
        let output = match self {
            Network::Mlp => mlp_in_onnx(&mut graph),
            Network::Conv => conv_in_onnx(&mut graph),
            Network::Transformer => transformer_in_onnx(&mut graph),
        };
        Ok(graph.finish(&self.shape(1), &output))
    }
}

fn mlp(weights: &VarBuilder<'_>) -> candle_core::Result<Forward> {
    let a = linear(784, 256, weights.pp("a"))?;
    let b = linear(256, 256, weights.pp("b"))?;
    let c = linear(256, 10, weights.pp("c"))?;
    Ok(Box::new(move |x| c.forward(&b.forward(&a.forward(x)?.relu()?)?.relu()?)))
}

fn mlp_in_onnx(graph: &mut Graph) -> String {
    let x = graph.linear("x", "a");
    let x = graph.node("Relu", &[&x], &[]);
    let x = graph.linear(&x, "b");
    let x = graph.node("Relu", &[&x], &[]);
    graph.linear(&x, "c")
}

fn conv(weights: &VarBuilder<'_>) -> candle_core::Result<Forward> {
    let same = Conv2dConfig { padding: 1, ..Default::default() };
    let layers = [
        conv2d(3, 16, 3, same, weights.pp("a"))?,
        conv2d(16, 32, 3, same, weights.pp("b"))?,
        conv2d(32, 64, 3, same, weights.pp("c"))?,
    ];
    let last = linear(1024, 10, weights.pp("d"))?;
    Ok(Box::new(move |x| {
        let layer = |x: Tensor, conv: &candle_nn::Conv2d| conv.forward(&x)?.relu()?.max_pool2d(2);
        last.forward(&layers.iter().try_fold(x.clone(), layer)?.flatten_from(1)?)
    }))
}

fn conv_in_onnx(graph: &mut Graph) -> String {
    let mut x = "x".to_owned();
    for layer in ["a", "b", "c"] {
        let (weight, bias) = (format!("{layer}.weight"), format!("{layer}.bias"));
        x = graph.node("Conv", &[&x, &weight, &bias], &[("pads", &[1; 4])]);
        x = graph.node("Relu", &[&x], &[]);
        x = graph.node("MaxPool", &[&x], &[("kernel_shape", &[2; 2]), ("strides", &[2; 2])]);
    }
    let x = graph.node("Flatten", &[&x], &[]);
    graph.linear(&x, "d")
}

fn transformer(weights: &VarBuilder<'_>) -> candle_core::Result<Forward> {
    let layer = |from, to, name| linear(from, to, weights.pp(name));
    let (query, key) = (layer(WIDTH, WIDTH, "query")?, layer(WIDTH, WIDTH, "key")?);
    let (value, out) = (layer(WIDTH, WIDTH, "value")?, layer(WIDTH, WIDTH, "out")?);
    let (up, down) = (layer(WIDTH, 4 * WIDTH, "up")?, layer(4 * WIDTH, WIDTH, "down")?);
    let norm = layer_norm(WIDTH, 1e-5, weights.pp("norm"))?;
    let end = layer_norm(WIDTH, 1e-5, weights.pp("end"))?;
    Ok(Box::new(move |x| {
        let heads = |x: Tensor| x.reshape(((), TOKENS, HEADS, WIDTH / HEADS))?.transpose(1, 2);
        let (q, k) = (heads(query.forward(x)?)?, heads(key.forward(x)?)?.transpose(2, 3)?);
        let scores = (q.contiguous()?.matmul(&k.contiguous()?)? * scale())?;
        let seen =
            ops::softmax_last_dim(&scores)?.matmul(&heads(value.forward(x)?)?.contiguous()?)?;
        let seen = seen.transpose(1, 2)?.reshape(((), TOKENS, WIDTH))?;
        let x = norm.forward(&(x + out.forward(&seen)?)?)?;
        end.forward(&(&x + down.forward(&up.forward(&x)?.gelu_erf()?)?)?)
    }))
}

fn transformer_in_onnx(graph: &mut Graph) -> String {
    let heads = |graph: &mut Graph, name, order: &[i64]| {
        let x = graph.linear("x", name);
        let x = graph.reshape(&x, &[0, TOKENS as i64, HEADS as i64, (WIDTH / HEADS) as i64]);
        graph.node("Transpose", &[&x], &[("perm", order)])
    };
    let (q, k) = (heads(graph, "query", &[0, 2, 1, 3]), heads(graph, "key", &[0, 2, 3, 1]));
    let v = heads(graph, "value", &[0, 2, 1, 3]);
    let scores = graph.node("MatMul", &[&q, &k], &[]);
    let scale = graph.scalar(scale() as f32);
    let scores = graph.node("Mul", &[&scores, &scale], &[]);
    let shares = graph.node("Softmax", &[&scores], &[("axis", &[-1])]);
    let seen = graph.node("MatMul", &[&shares, &v], &[]);
    let seen = graph.node("Transpose", &[&seen], &[("perm", &[0, 2, 1, 3])]);
    let seen = graph.reshape(&seen, &[0, TOKENS as i64, WIDTH as i64]);
    let seen = graph.linear(&seen, "out");
    let x = add_and_norm(graph, "x", &seen, "norm");
    let wide = graph.linear(&x, "up");
    let (root, one, half) = (graph.scalar(2f32.sqrt()), graph.scalar(1.0), graph.scalar(0.5));
    let gelu = graph.node("Div", &[&wide, &root], &[]);
    let gelu = graph.node("Erf", &[&gelu], &[]);
    let gelu = graph.node("Add", &[&gelu, &one], &[]);
    let gelu = graph.node("Mul", &[&wide, &gelu], &[]);
    let gelu = graph.node("Mul", &[&gelu, &half], &[]);
    let narrow = graph.linear(&gelu, "down");
    add_and_norm(graph, &x, &narrow, "end")
}

fn add_and_norm(graph: &mut Graph, x: &str, y: &str, name: &str) -> String {
    let sum = graph.node("Add", &[x, y], &[]);
    let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
    graph.node("LayerNormalization", &[&sum, &weight, &bias], &[("axis", &[-1])])
}

fn scale() -> f64 {
    1.0 / ((WIDTH / HEADS) as f64).sqrt()
}

fn in_onnx_runtime(session: &mut Session, shape: &[usize], x: &[f32]) -> Result<Vec<f32>> {
    let x = TensorRef::from_array_view((shape, x))?;
    Ok(session.run(ort::inputs![x])?[0].try_extract_tensor::<f32>()?.1.to_vec())
}

/// Microseconds of processor time for each input of a batch: the medians of candle and of ONNX Runtime.
fn measure(network: Network, batch: usize) -> Result<(f64, f64)> {
    let shape = network.shape(batch);
    let x = Rng::seeded(2).tensor(1.0, shape.clone())?;
    let numbers = x.flatten_all()?.to_vec1::<f32>()?;
    let forward = network.in_candle()?;
    let options = Session::builder()?.with_intra_threads(1).map_err(|e| e.to_string())?;
    let mut session = { options }.commit_from_memory(&network.in_onnx()?)?;

    let candle = || -> Result<Vec<f32>> { Ok(forward(&x)?.flatten_all()?.to_vec1()?) };
    let mut onnx = || in_onnx_runtime(&mut session, &shape, &numbers);
    let off = candle()?.iter().zip(&onnx()?).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < 1e-3, "{network:?}: the outputs differ by {off}");
    let (mut times, mut others) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        times.push(turn(batch, candle)?);
        others.push(turn(batch, &mut onnx)?);
    }
    Ok((median(times), median(others)))
}

/// Calls a network for a while: the microseconds of processor time for each input. Other programs hardly change them.
fn turn(batch: usize, mut network: impl FnMut() -> Result<Vec<f32>>) -> Result<f64> {
    let (begin, start, mut calls) = (processor_time()?, Instant::now(), 0);
    while start.elapsed() < TURN {
        black_box(network()?);
        calls += 1;
    }
    Ok((processor_time()? - begin) / 1e3 / f64::from(calls) / batch as f64)
}

/// Nanoseconds that this thread has run. Both sides compute on the thread that calls them.
fn processor_time() -> Result<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<()> {
    let args: Vec<String> = env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--write") {
        let folder = Path::new(args.get(at + 1).ok_or("--write needs a folder")?);
        for network in Network::ALL {
            fs::write(folder.join(format!("{network:?}.onnx")), network.in_onnx()?)?;
        }
        return Ok(());
    }
    // The first session would panic without the library.
    let library = env::var("ORT_DYLIB_PATH").unwrap_or("libonnxruntime.so".into());
    let missing =
        |error| format!("no ONNX Runtime: {error}; set ORT_DYLIB_PATH to the path of its library");
    ort::init_from(&library).map_err(missing)?.commit();
    // One call at a time, in a setting in which each producer has one thread.
    let devices: Devices = format!("cpu*{}", num_cpus::get()).parse()?;
    candle_threads(&devices)?;
    let measure = each(|(network, batch)| Ok((network, batch, measure(network, batch)?)));
    let mut runner = OrderedRunner::builder(measure).devices(devices).window(1).build()?;
    let cells = Network::ALL.into_iter().flat_map(|network| [(network, 1), (network, 32)]);
    println!("| | candle, us | ONNX Runtime, us | candle / ONNX Runtime |\n|---|---:|---:|---:|");
    for (network, batch, (candle, onnx)) in runner.run(cells)? {
        let ratio = candle / onnx;
        println!("| {network:?}, batches of {batch} | {candle:.1} | {onnx:.1} | {ratio:.2} |");
    }
    Ok(())
}
