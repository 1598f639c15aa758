//! The six hooks, on three CPU producers: `cargo run --example sum_of_squares`
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use gangline::{BoxError, ConsumerContext, ProducerContext, Result, Runner, UnorderedRunner};

struct SumOfSquares;

impl Runner for SumOfSquares {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = u64;
    type Summary = u64;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }

    fn producer_work(&self, _: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<u64> {
        Ok(x * x)
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<u64> {
        Ok(0)
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, sum: &mut u64, square: u64) -> Result<()> {
        *sum += square;
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, sum: u64) -> Result<u64> {
        Ok(sum)
    }
}

fn main() -> Result<(), BoxError> {
    // A sum does not care for order, so nothing waits for its turn.
    let mut runner = UnorderedRunner::new(SumOfSquares, 3)?;
    let sum = runner.run(0..100)?;
    assert_eq!(sum, 328_350);
    println!("{sum}");
    runner.close()?;
    Ok(())
}
