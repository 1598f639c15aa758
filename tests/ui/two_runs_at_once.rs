//! One handle has one run at a time.
fn main() {
    let same = gangline::map(|_| Ok(()), |_, _: &mut (), x: u64| Ok(x));
    let mut runner = gangline::OrderedRunner::new(same, 2).unwrap();
    let stream = runner.stream(0..10);
    let _ = runner.run(0..10);
    drop(stream);
}
