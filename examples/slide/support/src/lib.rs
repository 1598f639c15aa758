//! What `slide` has from beside it: connected regions of a grid, where ONNX Runtime is, the pages of a TIFF, and
//! slides to try it with.

mod make;
mod onnx;
mod pages;
mod regions;
mod runtime;

pub use self::make::{Make, Specimen};
pub use self::pages::open_tiff;
pub use self::regions::{Region, Regions, Rings};
pub use self::runtime::find_onnxruntime;
