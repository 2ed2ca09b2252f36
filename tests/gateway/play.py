"""Plays scenes and rounds: the program of `tests/rounds`, which starts the servers."""

import argparse
import os
import shutil
import sys
import tempfile
import time

import program
import rounds
from scenes import SCENES, Stage

ENGINES = program.ENGINES


def say(text):
    print(text, file=sys.stderr, flush=True)


def play_scenes(names, engines, keep):
    bad = 0
    for name in names:
        play, fitting = SCENES[name]
        for engine in engines:
            if engine not in fitting:
                continue
            folder = tempfile.mkdtemp(prefix=f"{name}-")
            stage = Stage(ENGINES[engine], folder, f"scene_{name.replace('-', '_')}"[:40])
            began = time.time()
            try:
                figures, is_ok = play(stage)
            except program.Failed as error:
                figures, is_ok = {"cannot be played": str(error)}, False
            finally:
                stage.close()
            panics = [line for site in stage.sites for line in site.panics()]
            if panics:
                figures["panics"], is_ok = len(panics), False
            bad += not is_ok
            text = "; ".join(f"{key}: {value}" for key, value in figures.items())
            print(f"{'ok ' if is_ok else 'BAD'} {name} {ENGINES[engine].name} ({time.time() - began:.0f} s): {text}", flush=True)
            if is_ok:
                shutil.rmtree(folder)
            else:
                keep_folder(folder, keep, f"{name}-{engine}")
    return bad


def keep_folder(folder, keep, name):
    kept = os.path.join(keep, name)
    shutil.rmtree(kept, ignore_errors=True)
    os.makedirs(keep, exist_ok=True)
    shutil.move(folder, kept)
    return kept


def main():
    parser = argparse.ArgumentParser(prog="tests/rounds", description=__doc__.splitlines()[0])
    parser.add_argument("rounds", nargs="?", type=int, help="how many, on each engine [default: 200]")
    parser.add_argument("--seed", type=int, help="play this round only; with a number of rounds: of the first one")
    parser.add_argument("--engine", action="append", choices=list(ENGINES))
    parser.add_argument("--scene", action="append", choices=list(SCENES), metavar="NAME")
    parser.add_argument("--scenes", action="store_true", help="play all scenes")
    parser.add_argument("--list", action="store_true", help="print the names of the scenes")
    parser.add_argument("--at-once", type=int, default=2, help="rounds that are played at the same time")
    arguments = parser.parse_args()
    if arguments.list:
        for name, (play, engines) in SCENES.items():
            print(f"{name:40} {' '.join(engines)}")
        return 0
    available = program.use_servers()
    engines = [engine for engine in arguments.engine or list(ENGINES) if engine in available]
    keep = os.path.abspath(os.environ.get("SMSQ_KEEP", "target/rounds"))
    if arguments.scene or arguments.scenes:
        names = arguments.scene or list(SCENES)
        return min(play_scenes(names, engines, keep), 1)
    arguments.rounds = arguments.rounds or (200 if arguments.seed is None else 1)
    return rounds.play_all(arguments, engines, keep)


if __name__ == "__main__":
    sys.exit(main())
