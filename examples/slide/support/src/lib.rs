//! What `slide` has from beside it: connected regions of a grid, where ONNX Runtime is, the levels of an OME-TIFF, and
//! slides to try it with.

mod make;
mod onnx;
mod regions;
mod runtime;
mod sub_pages;

pub use self::make::{Make, Specimen};
pub use self::regions::{Region, Regions, Rings};
pub use self::runtime::find_onnxruntime;
pub use self::sub_pages::sub_pages;
