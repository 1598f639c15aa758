//! What CUDA itself says about a GPU.

/// Free and total memory of the GPU of a candle device, in bytes; nothing where it is none of CUDA's.
#[cfg(feature = "cuda")]
pub(crate) fn free_and_total(device: &candle_core::Device) -> Option<(usize, usize)> {
    let stream = device.as_cuda_device().ok()?.cuda_stream();
    let context = stream.context();
    // What was freed and not reused is given back then, if CUDA has seen the end of the stream that freed it. So
    // this waits for all streams.
    context.synchronize().ok()?;
    context.mem_get_info().ok()
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn free_and_total(_: &candle_core::Device) -> Option<(usize, usize)> {
    None
}

/// The name of a GPU that does not depend on its number, as in `nvidia-smi -L`. It needs no context on the GPU, which
/// would take memory and time.
#[cfg(all(feature = "cuda", feature = "nvml"))]
pub(crate) fn uuid(index: usize) -> Option<String> {
    use candle_core::cuda_backend::cudarc::driver::result::{device, init};

    init().ok()?;
    let gpu = device::get(i32::try_from(index).ok()?).ok()?;
    let bytes = device::get_uuid(gpu).ok()?.bytes;
    let mut text = String::from("GPU");
    for (at, byte) in bytes.into_iter().enumerate() {
        let dash = if matches!(at, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
        text += &format!("{dash}{:02x}", byte as u8);
    }
    Some(text)
}
