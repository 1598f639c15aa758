//! A pool: a service of the library, whose streams are what `imap` is given.

use std::pin::Pin;
use std::time::Duration;

use gangline::service::{Call, StreamOptions};
use gangline::{CancelToken, Error, Order, Service};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::answer::Answer;
use crate::calls::NativeCalls;
use crate::default_window::DefaultWindow;
use crate::errors::{PoolErrorClass, Refused, own_thread, pool_failure, raised};
use crate::messages::FailedLoad;
use crate::objects::NativeObjects;
use crate::options::{KnownGpus, Options, Surroundings};
use crate::outcome::Outcome;
use crate::prints::prints;
use crate::report::NativeReport;
use crate::runner::{self, PyRunner};
use crate::stream::NativeStream;
use crate::value::Value;
use crate::wait::{EventWait, in_background};

/// The workers of a pool.
#[pyclass(frozen, module = "gangline._native")]
pub(crate) struct NativePool {
    service: Service<PyRunner>,
    failed: FailedLoad,
    places: Vec<KnownGpus>,
    default_window: DefaultWindow,
}

#[pymethods]
impl NativePool {
    /// Starts the workers, without waiting until they have loaded. `forward` is called with a `NativePrints`. If the items
    /// are named, the report has their names. Of the user's objects, threads use those in `objects`.
    #[new]
    fn new(
        py: Python<'_>,
        options: Options,
        are_named: bool,
        forward: Bound<'_, PyAny>,
        objects: &NativeObjects,
    ) -> PyResult<Self> {
        let objects = objects.held();
        let (sender, prints) = prints();
        let (failed, token) = (FailedLoad::default(), CancelToken::new());
        let around =
            Surroundings { prints: &sender, failed: &failed, objects, token: &token, stage: None };
        let runner = options.runner(None, objects)?;
        let cfg = runner.cfg(None).map_err(|error| Refused::Cfg { source: error })?;
        let builder = options.builder(runner, cfg, runner::recipe(py), &around)?;
        let builder = match options.queue() {
            Some(calls) => builder.window(calls),
            None => builder,
        };
        // Names take time for each item.
        let builder = match are_named {
            true => builder.key(|value: &Value| value.key().to_owned()),
            false => builder,
        };
        drop(sender);
        forward.call1((prints,))?;
        let built = in_background(py, move || Ok(builder.build()?.into_service()));
        let built = built.inspect_err(|_| token.cancel())?;
        let service = built.map_err(|error: Error| pool_failure(&error))?;
        let default_window = DefaultWindow::of(&options)?;
        Ok(NativePool { service, failed, places: options.places()?, default_window })
    }

    /// Opens a stream of at most `window` items, or of the default window.
    fn open_stream(&self, in_order: bool, window: Option<usize>) -> PyResult<NativeStream> {
        let order = if in_order { Order::Input } else { Order::Completion };
        let options = StreamOptions::new().order(order);
        let options = match (window, self.default_window) {
            (Some(window), _) => options.window(window),
            (None, DefaultWindow { items, least, bytes }) => {
                let output = |answer: &Answer| answer.value.size();
                options.window(items).least_open(least).memory(bytes, Value::size, output)
            }
        };
        NativeStream::new(self.service.open_stream(options), self.failed.clone())
    }

    /// Works on one input, and waits for its outcome: see [`Outcome::to_python`]. The deadline is in seconds.
    fn call<'py>(
        &self,
        py: Python<'py>,
        input: &Bound<'_, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (value, deadline) = (Value::of_input(input)?, limit_of(deadline)?);
        self.refuse_own_thread()?;
        let wait = EventWait::new()?;
        let mut call = py.detach(|| self.within(deadline).call_async(value));
        let answer = wait.until(py, |cx| Pin::new(&mut call).poll(cx));
        // A signal gives the call up.
        py.detach(|| drop(call));
        Outcome::of_result(0, answer?, &self.failed)?.to_python(py)
    }

    /// Begins a call, whose outcome comes in `calls` under this number. The deadline is in seconds. The call waits for its
    /// place in the queue, if need be.
    fn begin(
        &self,
        py: Python<'_>,
        calls: &NativeCalls,
        number: u64,
        input: &Bound<'_, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<()> {
        let (value, deadline) = (Value::of_input(input)?, limit_of(deadline)?);
        py.detach(|| {
            let call = self.within(deadline).call_async(value);
            calls.open_call(number, call, self.failed.clone());
        });
        Ok(())
    }

    /// Begins a call if the queue has a place for it.
    ///
    /// # Errors
    ///
    /// `gangline.Full` if it has none.
    fn try_begin(
        &self,
        py: Python<'_>,
        calls: &NativeCalls,
        number: u64,
        input: &Bound<'_, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<()> {
        let (value, deadline) = (Value::of_input(input)?, limit_of(deadline)?);
        let begun = py.detach(|| {
            // The value of a call that has no place is dropped while detached.
            let ticket = self.within(deadline).try_submit(value).ok()?;
            calls.open_call(number, Call::from(ticket), self.failed.clone());
            Some(())
        });
        begun.ok_or_else(|| raised(PoolErrorClass::Full, "the queue is full".to_owned()))
    }

    /// Fails on a thread of the pool's workers, which must not wait for the pool.
    fn refuse_own_thread(&self) -> PyResult<()> {
        match self.service.is_producer_thread() {
            true => Err(own_thread()),
            false => Ok(()),
        }
    }

    /// Refuses new calls, and waits until those that were accepted are answered, for at most `timeout` seconds. Returns
    /// whether all were.
    fn drain(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let timeout = limit_of(Some(timeout))?.unwrap_or_default();
        let service = self.service.clone();
        in_background(py, move || service.drain(timeout))
    }

    /// Ends the workers in order, once the hooks that run have returned.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let service = self.service.clone();
        let closed = in_background(py, move || service.close())?;
        closed.map_err(|error| pool_failure(&error))
    }

    /// Ends the workers now, in the middle of their work.
    fn terminate(&self, py: Python<'_>) -> PyResult<()> {
        let service = self.service.clone();
        // An error of an `end` is of no interest any more.
        in_background(py, move || service.terminate()).map(drop)
    }

    /// The ids of the GPUs of each worker; `None` of one on another machine.
    fn places(&self) -> Vec<KnownGpus> {
        self.places.clone()
    }

    /// What has happened since the start.
    fn report(&self) -> NativeReport {
        NativeReport::new(self.service.report())
    }
}

impl NativePool {
    /// The service, whose calls are answered within the deadline.
    fn within(&self, deadline: Option<Duration>) -> Service<PyRunner> {
        match deadline {
            Some(limit) => self.service.with_deadline(limit),
            None => self.service.clone(),
        }
    }
}

/// Reads a time limit in seconds.
fn limit_of(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let read = seconds.map(Duration::try_from_secs_f64).transpose();
    read.map_err(|error| PyValueError::new_err(error.to_string()))
}
