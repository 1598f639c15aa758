//! The user's model, in ONNX Runtime.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gangline::{Device, Result};
use gangline_slide_support::find_onnxruntime;
use ort::ep;
use ort::session::Session;
use ort::value::TensorRef;

use crate::options::Options;

/// A model on one device. Its input has the shape N x 3 x tile x tile, with red, green and blue from 0 to 1. Its output
/// has probabilities in one of the shapes N, N x classes and N x classes x height x width.
pub(crate) struct Model {
    session: Session,
    options: Arc<Options>,
    /// The input of a batch.
    input: Vec<f32>,
}

/// Loads ONNX Runtime from the named file, `ORT_DYLIB_PATH`, or the Python installation in `PATH`.
pub(crate) fn load_runtime(named: Option<PathBuf>) -> Result<()> {
    let library = find_onnxruntime(named)?;
    let wrong =
        |e| format!("{} cannot be loaded as ONNX Runtime 1.17 or later: {e}", library.display());
    ort::init_from(&library).map_err(wrong)?.commit();
    Ok(())
}

const SHAPES: &str = "N, N x classes or N x classes x height x width is needed, with the class of --class, and sides that \
    --tile / --cell divides or is divided by";
const ENDS: &str = "does it end with a sigmoid or softmax?";
const FREE: &str = "export it with a free N, or take --batch 1 if it is 1";

impl Model {
    /// Loads the model, and tries it with an empty tile. A model of the wrong shape then fails before the run.
    pub(crate) fn open(options: Arc<Options>, device: &Device) -> Result<Model> {
        let session = match device {
            Device::Cpu => session(&options.model, None)?,
            Device::Cuda(index) => session(&options.model, Some(*index as i32))?,
            other => return Err(format!("{other} is neither cpu nor a GPU such as cuda:0").into()),
        };
        let shape = session.inputs().first().and_then(|input| input.dtype().tensor_shape());
        let length = shape.and_then(|shape| shape.first().copied()).unwrap_or(-1);
        let is_single = options.batch.is_some_and(|size| size.get() == 1);
        // A batch that the model refuses would be divided into single tiles.
        if length > 1 || length == 1 && !is_single {
            return Err(format!("the model takes {length} tiles at a time: {FREE}").into());
        }
        let blank = vec![255; options.tile.pow(2) as usize * 3];
        let mut model = Model { session, options, input: Vec::new() };
        model.run([blank.as_slice()])?.remove(0)?;
        Ok(model)
    }

    /// Returns the cells of each tile, row by row: probabilities from 0 to 255.
    pub(crate) fn run<'t>(
        &mut self,
        tiles: impl IntoIterator<Item = &'t [u8]>,
    ) -> Result<Vec<Result<Vec<u8>>>> {
        self.input.clear();
        for tile in tiles {
            for colour in 0..3 {
                let values = tile[colour..].iter().step_by(3);
                self.input.extend(values.map(|&value| f32::from(value) / 255.0));
            }
        }
        let (side, cells) = (self.options.tile as usize, self.options.cells());
        let count = self.input.len() / (3 * side * side);
        let input = TensorRef::from_array_view(([count, 3, side, side], self.input.as_slice()))?;
        let outputs = self.session.run(ort::inputs![input])?;
        let (shape, values) = outputs[0].try_extract_tensor::<f32>()?;
        let wrong =
            || format!("the model's output has the shape {shape:?} for {count} tiles: {SHAPES}");
        let lengths: Vec<usize> = shape.iter().map(|&length| length as usize).collect();
        let (tiles, classes, [height, width]) = match lengths[..] {
            [tiles] => (tiles, 1, [1, 1]),
            [tiles, classes] => (tiles, classes, [1, 1]),
            [tiles, classes, height, width] => (tiles, classes, [height, width]),
            _ => return Err(wrong().into()),
        };
        let class = self.options.class.unwrap_or(classes.saturating_sub(1));
        let fits = |n: usize| n > 0 && (n.is_multiple_of(cells) || cells.is_multiple_of(n));
        if tiles != count || class >= classes || !fits(height) || !fits(width) {
            return Err(wrong().into());
        }
        let maps = values.chunks_exact(height * width).skip(class).step_by(classes);
        Ok(maps.map(|map| to_cells(map, width, cells)).collect())
    }
}

/// One thread for each session. More would compete with the other producers.
fn session(model: &Path, gpu: Option<i32>) -> ort::Result<Session> {
    let mut builder = Session::builder()?.with_intra_threads(1)?;
    if let Some(index) = gpu {
        let cuda = ep::CUDA::default().with_device_id(index).build().error_on_failure();
        builder = builder.with_execution_providers([cuda])?;
    }
    builder.commit_from_file(model)
}

/// Repeats or averages probabilities to the number of cells. Rounding to 255 steps also hides differences in the last
/// digits, which a model may have between batches of different sizes.
fn to_cells(values: &[f32], width: usize, cells: usize) -> Result<Vec<u8>> {
    if let Some(value) = values.iter().find(|value| !(-1e-5..=1.00001).contains(*value)) {
        return Err(format!("the model gives {value}, which is no probability: {ENDS}").into());
    }
    let height = values.len() / width;
    let span = |cell: usize, length: usize| {
        let from = cell * length / cells;
        from..((cell + 1) * length / cells).max(from + 1)
    };
    let cell = |i: usize| {
        let (columns, rows) = (span(i % cells, width), span(i / cells, height));
        let count = (columns.len() * rows.len()) as f32;
        let sum: f32 = rows.map(|y| values[y * width..][columns.clone()].iter().sum::<f32>()).sum();
        (sum / count * 255.0).round() as u8
    };
    Ok((0..cells * cells).map(cell).collect())
}
