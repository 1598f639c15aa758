//! A runner that borrows locals could outlive them on its threads.
fn main() {
    let offset = 7;
    let shifted = gangline::map(|_| Ok(()), |_, _: &mut (), x: u64| Ok(x + offset));
    let _ = gangline::OrderedRunner::new(shifted, 2);
}
