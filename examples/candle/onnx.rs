//! An ONNX model over files, in batches: `cargo run --release --features onnx --example onnx -- model.onnx FILE ..`
//!
//! A file has the numbers of one input as text. The program prints each file with the index of its largest output.
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::{env, fs};

use gangline::closures::TaskResult;
use gangline::{Batch, OnError, OrderedRunner, Result, map_batches};
use ort::session::Session;
use ort::value::{Shape, Tensor};

const HELP: &str = "`pip install onnxruntime` has it, in onnxruntime/capi: set ORT_DYLIB_PATH to \
                    the path of its libonnxruntime.so.*";

fn load(model: &str) -> Result<Session> {
    // One thread for each session: the producers share the cores.
    let builder = Session::builder()?.with_intra_threads(1).map_err(|e| e.to_string());
    Ok(builder?.commit_from_file(model)?)
}

fn read(file: &String) -> Result<Vec<f32>> {
    let text = fs::read_to_string(file)?.replace(',', " ");
    Ok(text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

/// Gives the model all files as one tensor. If that fails, gangline divides the batch until the bad file is alone.
fn predict(session: &mut Session, files: &[String]) -> Result<Vec<Result<usize>>> {
    let inputs = files.iter().map(read).collect::<Result<Vec<_>>>()?;
    let of_model = session.inputs()[0].dtype().tensor_shape().ok_or("the input is no tensor")?;
    let shape = Shape::new([&[files.len() as i64], &of_model[1..]].concat());
    let outputs = session.run(ort::inputs![Tensor::from_array((shape, inputs.concat()))?])?;
    let (_, numbers) = outputs[0].try_extract_tensor::<f32>()?;
    let largest = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
    let rows = numbers.chunks(numbers.len() / files.len()).map(largest);
    Ok(rows.map(|place| Ok(place.expect("a chunk is not empty"))).collect())
}

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let model = args.next().ok_or("name a model and files")?;
    let library = env::var("ORT_DYLIB_PATH").unwrap_or("libonnxruntime.so".into());
    ort::init_from(&library).map_err(|e| format!("no ONNX Runtime: {e}; {HELP}"))?.commit();
    let predict = map_batches(
        move |_| load(&model),
        |_, session: &mut Session, files: &mut Vec<String>| predict(session, files),
    );
    let builder = OrderedRunner::builder(predict.results()).on_error(OnError::Skip);
    let builder = builder.devices(num_cpus::get()).batch(Batch::up_to(32)).key(String::clone);
    let results = builder.build()?.run(args)?;
    for TaskResult { key, result, .. } in &results {
        let text = result.as_ref().map_or_else(ToString::to_string, ToString::to_string);
        println!("{}: {text}", key.as_deref().unwrap_or_default());
    }
    let failed = results.iter().filter(|task| task.result.is_err()).count();
    if failed == 0 { Ok(()) } else { Err(format!("{failed} files failed").into()) }
}
