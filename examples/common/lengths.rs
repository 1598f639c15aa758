// The runner of the examples in the documentation that take batches: the lengths of texts.

struct Lengths;

impl gangline::Runner for Lengths {
    type Input = String;
    type Output = usize;
    type ProducerState = ();
    type ConsumerState = Vec<usize>;
    type Summary = Vec<usize>;

    fn producer_init(&self, _: &gangline::ProducerContext<'_>) -> gangline::Result<()> {
        Ok(())
    }

    fn producer_work(
        &self,
        cx: &gangline::ProducerContext<'_>,
        state: &mut (),
        text: String,
    ) -> gangline::Result<usize> {
        self.producer_work_batch(cx, state, &mut vec![text])?.remove(0)
    }

    fn producer_work_batch(
        &self,
        _: &gangline::ProducerContext<'_>,
        _: &mut (),
        texts: &mut Vec<String>,
    ) -> gangline::Result<Vec<gangline::Result<usize>>> {
        Ok(texts.iter().map(|text| Ok(text.len())).collect())
    }

    fn consumer_init(&self, _: &gangline::ConsumerContext<'_>) -> gangline::Result<Vec<usize>> {
        Ok(Vec::new())
    }

    fn consumer_work(
        &self,
        _: &gangline::ConsumerContext<'_>,
        all: &mut Vec<usize>,
        length: usize,
    ) -> gangline::Result<()> {
        all.push(length);
        Ok(())
    }

    fn consumer_end(
        &self,
        _: &gangline::ConsumerContext<'_>,
        all: Vec<usize>,
    ) -> gangline::Result<Vec<usize>> {
        Ok(all)
    }
}
