//! Programs that must not compile. Each compiles without its last change.

/// A pool has one run at a time.
///
/// ```
/// let mut runner = gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2)?;
/// let stream = runner.outputs(0..10);
/// drop(stream);
/// runner.run(0..10)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// ```compile_fail,E0499
/// let mut runner = gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2)?;
/// let stream = runner.outputs(0..10);
/// runner.run(0..10)?;
/// drop(stream);
/// # Ok::<(), gangline::BoxError>(())
/// ```
mod two_runs_at_once {}

/// A runner that borrows could outlive what it borrows, on threads of its own.
///
/// ```
/// let offset = 7;
/// let shifted = gangline::map(|_| Ok(()), move |_, _, x: u64| Ok(x + offset));
/// gangline::OrderedRunner::new(shifted, 2)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// ```compile_fail,E0597
/// let offset = 7;
/// let borrowed = &offset;
/// let shifted = gangline::map(|_| Ok(()), move |_, _, x: u64| Ok(x + borrowed));
/// gangline::OrderedRunner::new(shifted, 2)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
mod a_runner_that_borrows {}

/// Inputs and outputs go from thread to thread, which the error says of the closure.
///
/// ```
/// gangline::map(|_| Ok(()), |_, _, x: std::sync::Arc<u64>| Ok(x));
/// gangline::each(|x: std::sync::Arc<u64>| Ok(x));
/// ```
///
/// ```compile_fail,E0277
/// gangline::map(|_| Ok(()), |_, _, x: std::rc::Rc<u64>| Ok(*x));
/// ```
///
/// ```compile_fail,E0277
/// gangline::map(|_| Ok(()), |_, _, x: u64| Ok(std::rc::Rc::new(x)));
/// ```
///
/// ```compile_fail,E0277
/// gangline::each(|x: u64| Ok(std::rc::Rc::new(x)));
/// ```
///
/// ```compile_fail,E0277
/// gangline::map_batches(|_| Ok(()), |_, _, xs: &mut Vec<u64>| Ok(xs.drain(..).map(|x| Ok(std::rc::Rc::new(x))).collect()));
/// ```
mod items_that_are_not_send {}

/// Inputs go to threads that outlive the call of `run`.
///
/// ```
/// let words = vec!["a".to_owned()];
/// let mut runner = gangline::OrderedRunner::new(gangline::each(|word: String| Ok(word.len())), 2)?;
/// runner.run(words.iter().cloned())?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// ```compile_fail,E0597
/// let words = vec!["a".to_owned()];
/// let mut runner = gangline::OrderedRunner::new(gangline::each(|word: &String| Ok(word.len())), 2)?;
/// runner.run(words.iter())?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
mod inputs_that_are_borrowed {}

/// A closure may fail, so it returns a `Result`. The error says where `Ok` is missing.
///
/// ```
/// gangline::map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
/// gangline::each(|x: u64| Ok(x * x));
/// ```
///
/// ```compile_fail,E0308
/// gangline::map(|_| Ok(()), |_, _, x: u64| x * x);
/// ```
///
/// ```compile_fail,E0308
/// gangline::map(|_| (), |_, _, x: u64| Ok(x * x));
/// ```
///
/// ```compile_fail,E0308
/// gangline::each(|x: u64| x * x);
/// ```
mod closures_without_ok {}

/// A hook is a plain function.
///
/// ```
/// gangline::OrderedRunner::new(gangline::each(|x: u64| Ok(x + 1)), 2)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// ```compile_fail,E0308
/// gangline::OrderedRunner::new(gangline::each(|x: u64| async move { Ok(x + 1) }), 2)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
mod hooks_that_await {}

/// Devices are a number or a list of names.
///
/// ```
/// gangline::OrderedRunner::new(gangline::each(|x: u64| Ok(x)), 1)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// ```compile_fail,E0277
/// gangline::OrderedRunner::new(gangline::each(|x: u64| Ok(x)), true)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
mod devices_that_are_a_truth_value {}

/// A type that implements `Work` is a runner once its outputs have a place to go to.
///
/// ```
/// # struct Twice;
/// # impl gangline::Work for Twice {
/// #     type Input = u64;
/// #     type Output = u64;
/// #     type ProducerState = ();
/// #     fn producer_init(&self, _: &gangline::ProducerContext<'_>) -> gangline::Result<()> { Ok(()) }
/// #     fn producer_work(&self, _: &gangline::ProducerContext<'_>, _: &mut (), x: u64) -> gangline::Result<u64> { Ok(2 * x) }
/// # }
/// # use gangline::Work;
/// gangline::OrderedRunner::new(Twice.collect(), 2)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// ```compile_fail,E0277
/// # struct Twice;
/// # impl gangline::Work for Twice {
/// #     type Input = u64;
/// #     type Output = u64;
/// #     type ProducerState = ();
/// #     fn producer_init(&self, _: &gangline::ProducerContext<'_>) -> gangline::Result<()> { Ok(()) }
/// #     fn producer_work(&self, _: &gangline::ProducerContext<'_>, _: &mut (), x: u64) -> gangline::Result<u64> { Ok(2 * x) }
/// # }
/// # use gangline::Work;
/// gangline::OrderedRunner::new(Twice, 2)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
mod work_that_is_not_collected {}

/// A stage takes the outputs of the one before it, and a pool is one stage.
///
/// ```
/// let lengths = gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, s: String| Ok(s.len())), 1)?;
/// let squares = gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, n: usize| Ok(n * n)), 1)?;
/// let roots = gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, n: usize| Ok(n.isqrt())), 1)?;
/// lengths.then(squares).then(roots).run([String::new()])?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// ```compile_fail,E0271
/// let mut lengths = gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, s: String| Ok(s.len())), 1)?;
/// let mut squares = gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, n: u32| Ok(n * n)), 1)?;
/// lengths.then(&mut squares).run([String::new()])?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// ```compile_fail,E0499
/// let mut squares = gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, n: usize| Ok(n * n)), 1)?;
/// let mut roots = gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, n: usize| Ok(n.isqrt())), 1)?;
/// squares.then(&mut roots).then(&mut roots).run([1])?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
mod stages_that_do_not_fit {}

/// A pipeline runs once the parts of its expansions are gathered.
///
/// ```
/// let pass = || gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, n: u64| Ok(n)), 1);
/// let (counts, parts) = (pass()?, pass()?);
/// let sums = gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, (_, n): (_, u64)| Ok(n)), 1)?;
/// let open = counts.expand(|n| 0..**n).then(parts);
/// open.gather(|_| 0, |sum, _, _, n| *sum += n).then(sums).run([3])?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// ```compile_fail,E0599
/// let pass = || gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, n: u64| Ok(n)), 1);
/// let (mut counts, mut parts) = (pass()?, pass()?);
/// let open = counts.expand(|n| 0..**n).then(&mut parts);
/// open.run([3])?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// ```compile_fail,E0599
/// let pass = || gangline::OrderedRunner::new(gangline::map(|_| Ok(()), |_, _, n: u64| Ok(n)), 1);
/// let open = pass()?.expand(|n| 0..**n).then(pass()?);
/// open.expand(|n| 0..**n);
/// # Ok::<(), gangline::BoxError>(())
/// ```
mod parts_that_are_not_gathered {}

/// What is expanded is gathered, and a stage takes it.
///
/// ```
/// use gangline::{OrderedRunner, each};
///
/// let part = || OrderedRunner::new(each(|x: u64| Ok(x)), 1);
/// let whole = OrderedRunner::new(each(|(_, sum): (std::sync::Arc<u64>, u64)| Ok(sum)), 1)?;
/// let expanded = part()?.expand(|x: &std::sync::Arc<u64>| 0..**x).then(part()?);
/// let gathered = expanded.gather(|_| 0, |sum: &mut u64, _, _, y| *sum += y);
/// gathered.then(whole).run(0..3)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// ```compile_fail,E0599
/// use gangline::{OrderedRunner, each};
///
/// let part = || OrderedRunner::new(each(|x: u64| Ok(x)), 1);
/// let expanded = part()?.expand(|x: &std::sync::Arc<u64>| 0..**x).then(part()?);
/// expanded.run(0..3)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// ```compile_fail,E0599
/// use gangline::{OrderedRunner, each};
///
/// let part = || OrderedRunner::new(each(|x: u64| Ok(x)), 1);
/// let expanded = part()?.expand(|x: &std::sync::Arc<u64>| 0..**x).then(part()?);
/// let gathered = expanded.gather(|_| 0, |sum: &mut u64, _, _, y| *sum += y);
/// gathered.run(0..3)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
mod expansions_without_an_end {}
