//! The last stage: the files of each slide, and the tables of slides that were written and that failed.

use std::sync::Arc;

use gangline::sink::{self, Csv, Sink, Writer};
use gangline::{ConsumerContext, Error, ProducerContext, Result, Runner};

use crate::job::Job;
use crate::map::{Canvas, HEADER, Row};
use crate::tissue::Work;

/// The name of the table of slides that failed.
pub(crate) const FAILED: &str = "failed.csv";

/// Writes the files of each slide, and its line into a table.
pub(crate) struct Write {
    job: Arc<Job>,
    slides: Sink<Csv>,
    failed: Sink<Csv>,
}

/// The tables while they are written.
pub(crate) struct Tables {
    slides: Writer<Csv>,
    failed: Writer<Csv>,
}

impl Write {
    pub(crate) fn new(job: Arc<Job>) -> Write {
        let output = &job.options.output;
        let slides = sink::csv(output.join("slides.csv"), HEADER);
        let failed = sink::csv(output.join(FAILED), ["slide", "error"]);
        Write { job, slides, failed }
    }
}

impl Runner for Write {
    type Input = (Arc<Work>, Canvas);
    type Output = Row;
    type ProducerState = ();
    type ConsumerState = Tables;
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }

    fn producer_work(
        &self,
        _: &ProducerContext<'_>,
        (): &mut (),
        (work, canvas): Self::Input,
    ) -> Result<Row> {
        let row = canvas.write(&work, &self.job.options)?;
        println!("wrote {}", row.0);
        Ok(row)
    }

    /// Goes on with the table of an earlier run. The table of failures is made again, since failed slides are tried
    /// again.
    fn consumer_init(&self, cx: &ConsumerContext<'_>) -> Result<Tables> {
        Ok(Tables { slides: self.slides.open(cx)?, failed: self.failed.open_at(0)? })
    }

    fn consumer_work(&self, cx: &ConsumerContext<'_>, to: &mut Tables, row: Row) -> Result<()> {
        to.slides.write(cx, &row)
    }

    /// Names a slide that failed in any stage.
    fn consumer_skipped(
        &self,
        cx: &ConsumerContext<'_>,
        to: &mut Tables,
        error: &Error,
    ) -> Result<()> {
        to.failed.append(&(cx.key(), format!("{error:#}")))?;
        Ok(to.failed.flush()?)
    }

    fn consumer_flush(&self, _: &ConsumerContext<'_>, to: &mut Tables) -> Result<()> {
        Ok(to.slides.flush()?)
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, to: Tables) -> Result<()> {
        to.failed.finish()?;
        to.slides.finish()?;
        Ok(())
    }
}
