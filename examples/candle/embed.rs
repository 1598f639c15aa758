//! Turns sentences into vectors with a transformer, one at a time and in batches:
//! `cargo run --release --features transformers --example embed`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_transformers::models::bert::Config;
use gangline::device::candle_threads;
use gangline::{Batch, BoxError, Devices, OrderedRunner, Result};
use tokenizers::{Tokenizer, TruncationParams};

use args::{Args, Flag, Usage};
use embedder::Embedder;
use encoder::{Encoder, Weights};
use rng::Rng;

#[path = "../common/args.rs"]
mod args;
#[path = "common/embedder.rs"]
mod embedder;
#[path = "common/encoder.rs"]
mod encoder;
#[path = "common/rng.rs"]
mod rng;
#[path = "common/words.rs"]
mod words;

const FLAGS: &[Flag] = &[
    Flag { name: "--devices", value: "LIST", help: "such as cpu*4 or cuda:all (default: all)" },
    Flag { name: "--batch", value: "N", help: "sentences in one batch (default: 32)" },
    Flag {
        name: "--items",
        value: "N",
        help: "how many sentences (default: all of the file, or 512)",
    },
    Flag { name: "--input", value: "FILE", help: "a sentence on each line (default: made up)" },
    Flag { name: "--output", value: "FILE", help: "for the vectors: a JSON list on each line" },
    Flag {
        name: "--weights",
        value: "FILE",
        help: "a BERT's safetensors (default: a small one, untrained)",
    },
    Flag { name: "--config", value: "FILE", help: "default: config.json beside the weights" },
    Flag { name: "--tokenizer", value: "FILE", help: "default: tokenizer.json beside the weights" },
    Flag { name: "--tokens", value: "N", help: "longer sentences are cut there (default: 128)" },
];

/// By how much a number of a vector may differ from that of the sentence on its own.
const TOLERANCE: f32 = 1e-4;

/// How sentences get to a producer.
#[derive(Clone, Copy)]
enum Mode {
    Single,
    Batched,
    Dynamic,
    /// In batches of sentences of like lengths, so that little is padded.
    Padded,
}

impl Mode {
    const ALL: [Mode; 4] = [Mode::Single, Mode::Batched, Mode::Dynamic, Mode::Padded];

    fn name(self) -> &'static str {
        match self {
            Mode::Single => "single",
            Mode::Batched => "batched",
            Mode::Dynamic => "dynamic",
            Mode::Padded => "padded",
        }
    }

    /// The rule for batches of at most `most` sentences, and how large one gets.
    fn rule(self, most: usize) -> (Option<Batch>, usize) {
        match self {
            Mode::Single => (None, 1),
            Mode::Batched | Mode::Padded => (Some(Batch::of(most)), most),
            Mode::Dynamic => (Some(Batch::up_to(most)), most),
        }
    }
}

/// What the text becomes tokens with.
enum Words {
    Hashed { vocabulary: usize },
    Of(Box<Tokenizer>),
}

impl Words {
    fn tokens(&self, sentence: &str, most: usize) -> Result<Vec<u32>> {
        match self {
            Words::Hashed { vocabulary } => Ok(words::tokens(sentence, *vocabulary, most)),
            Words::Of(tokenizer) => Ok(tokenizer.encode_fast(sentence, true)?.get_ids().to_vec()),
        }
    }
}

/// The network and what belongs to it.
struct Model {
    weights: Arc<Weights>,
    words: Words,
    /// The longest sentence it takes, in tokens.
    most_tokens: usize,
    /// What to call it.
    name: String,
}

/// What one mode did.
struct Row {
    mode: Mode,
    took: Duration,
    batches: u64,
    vectors: Vec<Vec<f32>>,
    /// The largest difference of a number from that of the first mode.
    difference: f32,
}

fn main() -> ExitCode {
    let about = "Turns sentences into vectors: one at a time, and in batches formed in three ways.";
    args::main(about, FLAGS, embed)
}

fn embed(args: &Args) -> Result<(), BoxError> {
    let devices = args.get("--devices")?.unwrap_or_else(Devices::available);
    candle_threads(&devices)?;
    let batch = args.get::<NonZeroUsize>("--batch")?.map_or(32, NonZeroUsize::get);
    let model = model(args)?;
    let sentences = sentences(args)?;

    println!("{}, {} sentences, {devices}\n", model.name, sentences.len());
    let mut rows = Vec::<Row>::new();
    for mode in Mode::ALL {
        let mut row = run(mode, &model, &sentences, &devices, batch)?;
        row.difference = difference(&rows.first().unwrap_or(&row).vectors, &row.vectors);
        rows.push(row);
    }
    print!("{}", table(&rows));
    if let Some(path) = args.get::<PathBuf>("--output")? {
        write(&path, &rows[0].vectors)?;
    }
    match rows.iter().find(|row| row.difference.is_nan() || row.difference > TOLERANCE) {
        None => Ok(()),
        Some(Row { mode, difference, .. }) => {
            let name = mode.name();
            Err(format!("{name} differs from single by {difference:e}, more than {TOLERANCE:e}")
                .into())
        }
    }
}

fn run(
    mode: Mode,
    model: &Model,
    sentences: &[String],
    devices: &Devices,
    batch: usize,
) -> Result<Row, BoxError> {
    let (rule, most) = mode.rule(batch);
    let largest = (most, model.most_tokens);
    let embedder = Embedder::new(&model.weights, largest);
    let mut builder = OrderedRunner::builder(embedder).devices(devices);
    if let Some(rule) = rule {
        builder = builder.batch(rule);
    }
    if let Mode::Padded = mode {
        builder = builder.max_padded_size(most * model.most_tokens, |tokens| tokens.len());
    }
    let mut runner = builder.build()?;
    let start = Instant::now();
    // Tokens are made while the devices work: here, on the caller's thread.
    let tokens = sentences.iter().map(|sentence| model.words.tokens(sentence, model.most_tokens));
    let vectors = runner.try_run(tokens)?;
    let took = start.elapsed();
    let batches = runner.runner().batches();
    runner.close()?;
    Ok(Row { mode, took, batches, vectors, difference: 0.0 })
}

fn difference(some: &[Vec<f32>], others: &[Vec<f32>]) -> f32 {
    let pairs = some.iter().flatten().zip(others.iter().flatten());
    // Unlike `max`, this does not lose a NaN.
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, |most, d| if d <= most { most } else { d })
}

fn table(rows: &[Row]) -> String {
    let mut text =
        String::from("mode       items  seconds  items/s  items per batch  difference\n");
    for Row { mode, took, batches, vectors, difference } in rows {
        let (name, items, seconds) = (mode.name(), vectors.len(), took.as_secs_f64());
        let (rate, size) = (items as f64 / seconds, items as f64 / *batches as f64);
        text += &format!(
            "{name:<8}{items:>8}{seconds:>9.3}{rate:>9.1}{size:>17.1}{difference:>12.1e}\n"
        );
    }
    text
}

fn write(path: &Path, vectors: &[Vec<f32>]) -> Result<(), BoxError> {
    let lines = vectors.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    std::fs::write(path, lines.join("\n") + "\n")
        .map_err(|e| format!("cannot write {}: {e}", path.display()).into())
}

/// Those of the file, or made up: of 3 to 60 words, so that a batch has short and long ones.
fn sentences(args: &Args) -> Result<Vec<String>, BoxError> {
    let items = args.get::<NonZeroUsize>("--items")?.map(NonZeroUsize::get);
    let Some(path) = args.get::<PathBuf>("--input")? else {
        let mut rng = Rng::seeded(7);
        let made_up = (0..items.unwrap_or(512)).map(|_| {
            let count = rng.uniform(3.0, 61.0) as usize;
            words::sentence(&mut rng, count)
        });
        return Ok(made_up.collect());
    };
    let text = String::from_utf8(read_file(&path)?)
        .map_err(|e| format!("{} is not text: {e}", path.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let sentences: Vec<_> = lines.take(items.unwrap_or(usize::MAX)).map(String::from).collect();
    if sentences.is_empty() {
        return Err(format!("{} has no sentence", path.display()).into());
    }
    Ok(sentences)
}

fn model(args: &Args) -> Result<Model, BoxError> {
    let most_tokens = args.get::<NonZeroUsize>("--tokens")?.map_or(128, NonZeroUsize::get);
    if most_tokens < 3 {
        let text = "--tokens: at least 3, since two begin and end each sentence";
        return Err(Usage(text.into()).into());
    }
    match args.get::<PathBuf>("--weights")? {
        Some(weights) => trained(args, &weights, most_tokens),
        None => untrained(args, most_tokens),
    }
}

fn untrained(args: &Args, most_tokens: usize) -> Result<Model, BoxError> {
    for name in ["--config", "--tokenizer"] {
        if args.get::<PathBuf>(name)?.is_some() {
            return Err(Usage(format!("{name} goes with --weights")).into());
        }
    }
    let config = Config {
        vocab_size: 1000,
        hidden_size: 128,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        intermediate_size: 512,
        ..Config::default()
    };
    let most_tokens = most_tokens.min(config.max_position_embeddings);
    let words = Words::Hashed { vocabulary: config.vocab_size };
    let weights = Arc::new(Weights::seeded(config, 1)?);
    Ok(Model { weights, words, most_tokens, name: "a small network, untrained".into() })
}

fn trained(args: &Args, path: &Path, most_tokens: usize) -> Result<Model, BoxError> {
    let beside = |name| path.with_file_name(name);
    let config_path = args.get("--config")?.unwrap_or_else(|| beside("config.json"));
    let tokenizer_path = args.get("--tokenizer")?.unwrap_or_else(|| beside("tokenizer.json"));

    let config = read_config(&config_path)?;
    let most_tokens = most_tokens.min(config.max_position_embeddings);
    let tokenizer = read_tokenizer(&tokenizer_path, most_tokens)?;
    let known = tokenizer.get_vocab_size(true);
    if known > config.vocab_size {
        let (tokenizer, config, rows) =
            (tokenizer_path.display(), config_path.display(), config.vocab_size);
        return Err(format!("{tokenizer} has {known} tokens, {config} only {rows}").into());
    }
    let weights = read_weights(path, config)?;
    check(&weights)
        .map_err(|e| format!("{} does not fit {}: {e}", path.display(), config_path.display()))?;
    let name = path.display().to_string();
    Ok(Model { weights: Arc::new(weights), words: Words::Of(tokenizer.into()), most_tokens, name })
}

fn read_config(path: &Path) -> Result<Config, BoxError> {
    let config: Config = serde_json::from_slice(&read_file(path)?)
        .map_err(|e| format!("{} is no BERT's configuration: {e}", path.display()))?;
    match config.model_type.as_deref() {
        None | Some("bert") => Ok(config),
        Some(other) => {
            Err(format!("{} is for a network of type {other}, not bert", path.display()).into())
        }
    }
}

fn read_tokenizer(path: &Path, most_tokens: usize) -> Result<Tokenizer, BoxError> {
    let mut tokenizer = Tokenizer::from_bytes(read_file(path)?)
        .map_err(|e| format!("{} is no tokenizer: {e}", path.display()))?;
    // The file may ask for padding to a fixed length; here each batch is padded to its longest.
    tokenizer.with_padding(None);
    tokenizer
        .with_truncation(Some(TruncationParams { max_length: most_tokens, ..Default::default() }))
        .map_err(|e| format!("{} cannot cut texts at {most_tokens} tokens: {e}", path.display()))?;
    Ok(tokenizer)
}

fn read_weights(path: &Path, config: Config) -> Result<Weights, BoxError> {
    let tensors =
        candle_core::safetensors::load_buffer(&read_file(path)?, &candle_core::Device::Cpu)
            .map_err(|e| format!("{} is no safetensors file: {e}", path.display()))?;
    let tensors = tensors.into_iter().map(|(name, tensor)| (todays(&name), tensor)).collect();
    Ok(Weights { config, tensors })
}

/// The name of a tensor as candle knows it. Files of a larger network, of which BERT is a part, begin its
/// names with its own, and the first BERT's say gamma and beta.
fn todays(name: &str) -> String {
    let name = name.strip_prefix("bert.").unwrap_or(name);
    name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
}

/// Loads the weights once on the CPU, so that an error comes before any device is opened.
fn check(weights: &Weights) -> Result<(), BoxError> {
    let encoder = Encoder::load(weights, &candle_core::Device::Cpu)?;
    let vectors = encoder.encode(&[vec![0; 2], vec![0; 3]])?;
    let lengths: Vec<usize> = vectors.iter().map(Vec::len).collect();
    if lengths != [weights.config.hidden_size; 2] {
        return Err(format!("vectors of {lengths:?} numbers for two texts").into());
    }
    if vectors.iter().flatten().any(|number| !number.is_finite()) {
        return Err("the vectors are not finite".into());
    }
    Ok(())
}

/// The bytes of a file, or an error that names it.
fn read_file(path: &Path) -> Result<Vec<u8>, BoxError> {
    std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()).into())
}
