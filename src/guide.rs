//! Guides: a page for each task, and one for each tool that readers come from.
//!
//! | to | read |
//! |---|---|
//! | give a GPU many items at a time | [`batches`] |
//! | run several steps at once, make many items of one and one of many | [`pipelines`] |
//! | name, share and lock GPUs | [`gpus`] |
//! | survive hooks that crash the process | [`processes`] |
//! | work on many machines | [the crate gangline-nats](https://docs.rs/gangline-nats) |
//! | answer calls from threads or async code | [`services`] |
//! | work with streams, tasks and iterators that own their pool | [`async`] |
//! | write results to a file, and resume a run after a crash | [`resume`] |
//! | test a runner with a GPU that fails, without a GPU | [`test_your_runner`] |
//! | find out what limited a run | [`reports`] |
//! | show progress | [`progress`] |
//! | watch runs and services with Prometheus and Grafana | [`metrics`] |
//! | load settings from files and the environment | [`config`] |
//! | port a program | [`from_chassis`], [`from_cog`], [`from_daft`], [`from_dataloader`], [`from_easycore`], [`from_gpupool`], [`from_multiprocessing`], [`from_ray_data`], [`from_rayon`], [`from_scipion`], [`from_slurm_arrays`], [`from_tokio`], [`from_whole_slide`] |
//! | run commands and Python scripts | [the program `gangline`](https://docs.rs/gangline-cli) |
//!
//! These modules exist in the documentation only.

// A page names the files that it links to in labels, which lead to files of the repository. The labels of
// `links.md` come first, so here they lead to modules.
macro_rules! guides {
    ($($(#[$condition:meta])* $name:ident: $page:literal)*) => {$(
        $(#[$condition])*
        #[doc = include_str!("guide/links.md")]
        #[doc = include_str!(concat!("../docs/", $page))]
        pub mod $name {}
    )*};
}

guides! {
    #[cfg(any(not(doctest), feature = "futures"))]
    r#async: "async.md"
    batches: "batches.md"
    config: "config.md"
    from_chassis: "from-chassis.md"
    from_cog: "from-cog.md"
    from_daft: "from-daft.md"
    from_dataloader: "from-dataloader.md"
    from_easycore: "from-easycore.md"
    from_gpupool: "from-gpupool.md"
    from_multiprocessing: "from-multiprocessing.md"
    from_ray_data: "from-ray-data.md"
    from_rayon: "from-rayon.md"
    from_scipion: "from-scipion.md"
    from_slurm_arrays: "from-slurm-arrays.md"
    #[cfg(any(not(doctest), feature = "futures"))]
    from_tokio: "from-tokio.md"
    from_whole_slide: "from-whole-slide.md"
    gpus: "gpus.md"
    #[cfg(any(not(doctest), feature = "metrics"))]
    metrics: "metrics.md"
    #[cfg(any(not(doctest), all(feature = "processes", target_os = "linux")))]
    processes: "processes.md"
    pipelines: "pipelines.md"
    #[cfg(any(not(doctest), feature = "progress"))]
    progress: "progress.md"
    reports: "reports.md"
    resume: "resume.md"
    #[cfg(any(not(doctest), feature = "tower"))]
    services: "services.md"
    test_your_runner: "test-your-runner.md"
}
