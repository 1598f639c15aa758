//! The subjects, one in each file.

mod bare;
pub mod channels;
mod easycore;
mod gangline;
mod orx;
mod pariter;
mod plain_loop;
mod rayon;
mod split_loop;

use ::gangline::BoxError;

use crate::effort::Effort;
use crate::gangs::Gang;
use crate::options::Options;
use crate::subject::{Kind, Subject};

pub use channels::Channels;
pub use easycore::Easycore;
pub use gangline::Gangline;
pub use plain_loop::PlainLoop;
pub use rayon::ParBridge;

/// All that this machine has; the plain loop comes first.
pub fn all(options: &Options) -> Result<Vec<Box<dyn Subject>>, BoxError> {
    let threads = options.threads;
    let mut all: Vec<Box<dyn Subject>> = vec![
        Box::new(PlainLoop),
        Box::new(split_loop::SplitLoop { threads }),
        Box::new(ParBridge::new(threads)?),
        Box::new(rayon::ParCollect::new(threads)?),
        Box::new(orx::Orx { threads }),
        Box::new(pariter::Pariter { threads }),
        Box::new(Channels::of_256(threads)),
        Box::new(bare::Bare { producers: threads, kind: Kind::Bare }),
        Box::new(bare::Bare { producers: 1, kind: Kind::BareOne }),
    ];
    for gang in Gang::DEFAULTS.into_iter().chain(Gang::NARROW).chain([Gang::TIMED]) {
        all.push(Box::new(Gangline::new(gang, threads)));
    }
    // Starting Python takes longer than a smoke run.
    if options.effort != Effort::Smoke && Easycore::is_installed() {
        all.push(Box::new(Easycore { threads }));
    }
    Ok(all)
}
