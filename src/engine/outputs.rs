//! Begins and continues the outputs of a pool.

use std::sync::Arc;

use super::feed::Source;
use super::in_progress::InProgress;
use super::run_session::Session;
use super::session::Engine;
use super::streaming::{FedBy, Streaming, Yield, last_error};
use crate::backend::threads::recording::Recording;
use crate::backend::threads::run::Run;
use crate::error::Error;
use crate::runner::Runner;

/// Begins a stream. It continues with [`next`] or [`next_fed`].
pub(crate) fn start<R: Runner + 'static>(
    engine: &mut Engine<R>,
    fed_by: FedBy,
    unread: Option<u64>,
) -> Result<Arc<Run<R>>, Error> {
    engine.reset(unread);
    engine.check_no_journal().inspect_err(|error| engine.refuse(error))?;
    let session = engine.begin(Recording::default())?;
    Ok(enter(engine, session, fed_by, unread))
}

/// Makes this the stream in progress.
pub(super) fn enter<R: Runner + 'static>(
    engine: &mut Engine<R>,
    session: Session<R>,
    fed_by: FedBy,
    unread: Option<u64>,
) -> Arc<Run<R>> {
    let run = session.run.clone();
    let (order, window) = (engine.settings.order, engine.window());
    let streaming = Streaming::new(session, order, window, fed_by, unread);
    engine.in_progress = Some(InProgress::Outputs(Box::new(streaming)));
    run
}

/// Returns the next output of the stream in progress. The last one ends the stream.
pub(crate) fn next<R: Runner + 'static, I>(
    engine: &mut Engine<R>,
    source: &mut Source<I, R::Input>,
) -> Option<Result<R::Output, Error>> {
    let step = in_progress(engine)?.next(source);
    if matches!(step, None | Some(Yield::Last(_))) {
        engine.end_stream_with(last_error(&step));
    }
    step.map(Yield::into_result)
}

/// Returns the next step of a stream that a thread of its own feeds. The last one does not end the stream.
pub(super) fn next_fed<R: Runner>(engine: &mut Engine<R>) -> Option<Yield<R::Output>> {
    in_progress(engine)?.next_fed()
}

/// The stream in progress, if there is one.
pub(super) fn in_progress<R: Runner>(engine: &mut Engine<R>) -> Option<&mut Streaming<R>> {
    match engine.in_progress.as_mut()? {
        InProgress::Outputs(streaming) => Some(streaming),
        #[cfg(feature = "futures")]
        _ => None,
    }
}
