//! Runners of one closure, which takes batches.

use gangline::{ProducerContext, Result, Runner};

/// A runner of `hook`. Its consumer fails, since a service has none.
pub fn batches<F>(hook: F) -> impl Runner<Input = u64, Output = u64> + 'static
where
    F: Fn(&ProducerContext<'_>, &mut Vec<u64>) -> Result<Vec<Result<u64>>> + Send + Sync + 'static,
{
    gangline::map_batches(|_| Ok(()), move |cx, _: &mut (), inputs: &mut Vec<u64>| hook(cx, inputs))
        .fold(|_| Err::<(), _>("a service has no consumer".into()), |_, _, _| Ok(()))
}

/// Passes a batch through.
pub fn passed(inputs: &mut Vec<u64>) -> Result<Vec<Result<u64>>> {
    Ok(inputs.drain(..).map(Ok).collect())
}
