//! Candle's devices in the hooks.

use std::rc::Rc;

#[cfg(target_os = "linux")]
use candle_core::DType;
use candle_core::{Device, Tensor};
use candle_nn::{Linear, Module, Sequential, seq};
#[cfg(target_os = "linux")]
use gangline::device::CpuThreads;
use gangline::{Devices, Hook, OrderedRunner, map};

use crate::support::no_hang;

#[test]
fn d10_a_producer_opens_its_devices_once() {
    no_hang(|| {
        let ask = map(
            |cx| {
                assert_eq!(cx.candle_devices()?.len(), cx.devices().len());
                cx.candle_device()
            },
            |cx, device: &mut Device, x: f32| {
                assert!(cx.candle_device()?.same_device(device), "made once per producer");
                Ok(Tensor::new(x, device)?.sqr()?.to_scalar::<f32>()?)
            },
        );
        let mut runner = OrderedRunner::new(ask, "cpu*2").unwrap();
        assert_eq!(runner.run([1.0, 2.0, 3.0]).unwrap(), [1.0, 4.0, 9.0]);
    });
}

#[test]
fn labels_are_no_devices() {
    no_hang(|| {
        let ask = map(|cx| cx.candle_device().map(drop), |_, (), x: u64| Ok(x));
        let labels: Devices = "cuda:5".parse().unwrap();
        let error = OrderedRunner::new(ask, labels.names_only()).unwrap_err();
        assert_eq!(error.hook(), Some(Hook::ProducerInit));
        assert!(format!("{error:#}").contains("cuda:5"), "{error:#}");
    });
}

#[cfg(not(feature = "cuda"))]
#[test]
fn d1_a_gpu_in_a_build_without_cuda_is_an_error_before_any_hook() {
    no_hang(|| {
        let never = map(|_| -> gangline::Result<()> { panic!("a hook") }, |_, (), x: u64| Ok(x));
        let error = OrderedRunner::new(never, "cuda:0").unwrap_err();
        assert!(error.hook().is_none() && error.to_string().contains("feature `cuda`"), "{error}");
    });
}

/// `Sequential` is neither `Send` nor `Sync`, and still a fine state.
#[test]
fn a_model_that_is_not_send_is_a_fine_state() {
    no_hang(|| {
        let predict = map(
            |cx| {
                let device = cx.candle_device()?;
                let weight = Tensor::new(&[[1f32], [2.0], [3.0]], &device)?;
                Ok(Rc::new(seq().add(Linear::new(weight, None)).add(candle_nn::Activation::Relu)))
            },
            |cx, net: &mut Rc<Sequential>, x: f32| {
                let input = Tensor::new(&[[x]], &cx.candle_device()?)?;
                Ok(net.forward(&input)?.squeeze(0)?.to_vec1::<f32>()?)
            },
        );
        let mut runner = OrderedRunner::new(predict, 3).unwrap();
        let rows = runner.run((0..100u8).map(f32::from)).unwrap();
        assert_eq!(rows.len(), 100);
        assert!(rows.iter().zip(0..100u8).all(|(row, x)| row[2] == 3.0 * f32::from(x)));
    });
}

#[test]
fn an_error_of_candle_goes_through_a_hook() {
    no_hang(|| {
        let mismatch = map(
            |cx| cx.candle_device(),
            |_, device: &mut Device, n: usize| {
                let (a, b) = (Tensor::ones(2, candle_core::DType::F32, device)?, n);
                Ok(a.broadcast_add(&Tensor::ones(b, candle_core::DType::F32, device)?)?
                    .elem_count())
            },
        );
        let mut runner = OrderedRunner::new(mismatch, 2).unwrap();
        let error = runner.run([1, 2, 3]).unwrap_err();
        assert_eq!(error.item(), Some(2));
        let cause = std::error::Error::source(&error).unwrap();
        assert!(cause.is::<candle_core::Error>(), "{error:#}");
    });
}

/// Runs itself as a child process, in which nothing else starts threads.
#[cfg(target_os = "linux")]
#[test]
fn candle_stays_on_the_threads_of_its_producer() {
    if std::env::var_os("CHILD_OF_CANDLE").is_none() {
        let name = "candle::candle_stays_on_the_threads_of_its_producer";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args([name, "--exact", "--nocapture"]).env("CHILD_OF_CANDLE", "1");
        // As candle has it on a machine with three cores.
        let child = child.env("RAYON_NUM_THREADS", "3").output().unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    let new_threads = |threads: CpuThreads| {
        let count = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let hook = map(
            move |_| {
                let before = count();
                let image = Tensor::ones((2, 8, 64, 64), DType::F32, &Device::Cpu)?;
                let kernel = Tensor::ones((8, 8, 3, 3), DType::F32, &Device::Cpu)?;
                image.conv2d(&kernel, 1, 1, 1, 1)?;
                let square = Tensor::ones((256, 256), DType::F32, &Device::Cpu)?;
                square.matmul(&square)?;
                Ok(count() - before)
            },
            |_, new, ()| Ok(*new),
        );
        let builder = OrderedRunner::builder(hook).devices(1).cpu_threads(threads);
        builder.build().unwrap().run([()]).unwrap()
    };
    assert_eq!(new_threads(CpuThreads::Exactly(1)), [0]);
    assert_eq!(new_threads(CpuThreads::Exactly(2)), [0]);
    assert_eq!(new_threads(CpuThreads::Global), [3]);
}

/// `out.weight` and `out.bias` of a layer from one number to one, in files of their own.
fn weight_files(folder: &std::path::Path) -> [std::path::PathBuf; 2] {
    ["weight", "bias"].map(|name| {
        let shape: &[usize] = if name == "weight" { &[1, 1] } else { &[1] };
        let tensor = Tensor::ones(shape, candle_core::DType::F32, &Device::Cpu).unwrap();
        let path = folder.join(name);
        let tensors = [(format!("out.{name}"), (tensor * 3.0).unwrap())];
        candle_core::safetensors::save(&tensors.into_iter().collect(), &path).unwrap();
        path
    })
}

/// Makes the layer of any weights, and asks it for 2.0.
fn answer(
    layer: impl Fn(&gangline::ProducerContext<'_>) -> gangline::Result<Linear> + Send + Sync + 'static,
) -> Result<f32, gangline::Error> {
    let ask = map(layer, |cx, layer: &mut Linear, x: f32| {
        let x = Tensor::from_slice(&[x], (1, 1), &cx.candle_device()?)?;
        Ok(layer.forward(&x)?.flatten_all()?.to_vec1::<f32>()?[0])
    });
    Ok(OrderedRunner::new(ask, 2)?.run([2.0])?[0])
}

#[test]
fn weights_come_from_files_bytes_and_tensors() {
    use candle_core::DType;
    use candle_nn::linear;

    let folder = tempfile::tempdir().unwrap();
    let files = weight_files(folder.path());
    let bytes = files.clone().map(|file| std::fs::read(file).unwrap());
    let tensors: std::collections::HashMap<_, _> = files
        .iter()
        .flat_map(|file| candle_core::safetensors::load(file, &Device::Cpu).unwrap())
        .collect();
    let texts = files.clone().map(|file| file.to_str().unwrap().to_owned());

    let (f, t, b) = (files.clone(), texts.clone(), bytes.clone());
    let all = [
        answer(move |cx| Ok(linear(1, 1, cx.var_builder(&f, DType::F32)?.pp("out"))?)),
        answer(move |cx| {
            Ok(linear(1, 1, cx.var_builder([&*t[0], &*t[1]].iter(), DType::F32)?.pp("out"))?)
        }),
        answer(move |cx| {
            Ok(linear(1, 1, cx.var_builder([&b[0][..], &b[1][..]].iter(), DType::F32)?.pp("out"))?)
        }),
        answer(move |cx| Ok(linear(1, 1, cx.var_builder(&bytes, DType::F32)?.pp("out"))?)),
        answer(move |cx| Ok(linear(1, 1, cx.var_builder([&tensors], DType::F32)?.pp("out"))?)),
    ];
    for answer in all {
        assert_eq!(answer.unwrap(), 9.0);
    }
}

#[test]
fn weights_that_cannot_be_used_are_named() {
    use candle_core::DType;
    use candle_nn::linear;

    let folder = tempfile::tempdir().unwrap();
    let files = weight_files(folder.path());
    let missing = folder.path().join("none");
    let text = |error: gangline::Error| {
        assert_eq!(error.hook(), Some(Hook::ProducerInit));
        format!("{error:#}")
    };
    let path = missing.display().to_string();
    let error = answer(move |cx| Ok(linear(1, 1, cx.var_builder([&missing], DType::F32)?)?));
    let error = text(error.unwrap_err());
    assert!(error.contains(&format!("the weights {path} could not be read: ")), "{error}");
    let error = answer(|cx| Ok(linear(1, 1, cx.var_builder([&b"no weights"[..]], DType::F32)?)?));
    let error = text(error.unwrap_err());
    assert!(error.contains("the bytes of the weights are no safetensors file: "), "{error}");
    let error =
        answer(move |cx| Ok(linear(1, 1, cx.var_builder([&files[0]], DType::F32)?.pp("out"))?));
    let error = text(error.unwrap_err());
    assert!(error.contains("out.bias"), "{error}");
}
