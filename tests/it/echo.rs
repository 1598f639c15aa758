//! Hooks that give batches back as they are.

use gangline::Result;

use crate::hooks::Hooks;

fn same(inputs: &[u64]) -> Vec<Result<u64>> {
    inputs.iter().copied().map(Ok).collect()
}

/// Gives numbers back, batch by batch.
pub fn echo() -> Hooks {
    Hooks::new().work(|_, _| unreachable!("it works by the batch")).by_batch(|_, xs| Ok(same(xs)))
}

/// As [`echo`]; a batch with `bad` fails as a whole.
pub fn echo_failing_at(bad: u64) -> Hooks {
    echo().by_batch(move |_, inputs| match inputs.contains(&bad) {
        true => Err("bad".into()),
        false => Ok(same(inputs)),
    })
}

/// As [`echo`]; a batch with `bad` panics.
pub fn echo_panicking_at(bad: u64) -> Hooks {
    echo().by_batch(move |_, inputs| {
        assert!(!inputs.contains(&bad), "bad");
        Ok(same(inputs))
    })
}

/// Takes its inputs, and fails at the first attempt at a batch with 5.
pub fn together() -> Hooks {
    Hooks::new().by_batch(|cx, inputs| {
        let inputs = std::mem::take(inputs);
        if inputs.contains(&5) && cx.attempt() == 1 {
            return Err("five".into());
        }
        Ok(same(&inputs))
    })
}
