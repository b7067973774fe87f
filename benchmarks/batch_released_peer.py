"""Runs the released simulator of PCAPS' authors; called by batch_released.py in its own Python.

Reads requests from standard input, a line of JSON each, and answers each with one. Their program
is imported, never changed on disk; what is set here is what it asks a caller to set, and `warm`.
"""

import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
#: Its CAP on FIFO can go round in circles for ever.
MOST_SECONDS = 120.0
HOUR_MS = 60_000


def prepare(program: str, jobs: str):
    """Its modules, with its own defaults: 100 executors, gamma 0.5, at least 20 executors."""
    model = "models/stream_200_job_diff_reward_reset_5e-7_5e-8/model_ep_20000"
    sys.argv = ["test.py", "--job_folder", jobs + "/", "--saved_model", f"{program}/{model}"]
    sys.path.insert(0, program)
    import numpy as np

    plain_sum = np.sum
    # It adds up generators, which numpy no longer does.
    np.sum = lambda values, *a, **k: plain_sum(
        list(values) if hasattr(values, "__next__") else values, *a, **k
    )
    from spark_env import env, free_executors, job_generator

    return np, env, free_executors, job_generator


def keep_warm(free_executors) -> None:
    """An executor that falls idle within its job remembers that it has worked for it."""
    forget = free_executors.FreeExecutors.add

    def add(self, job, executor):
        last = executor.task
        forget(self, job, executor)
        if job is not None:
            executor.task = last

    free_executors.FreeExecutors.add = add


def agent_of(scheme: str, carbon: dict, seed: int):
    from param import args

    if scheme == "fifo":
        from agents.spark_agent import SparkAgent

        return SparkAgent(exec_cap=args.exec_cap)
    if scheme == "fair":
        from agents.heuristic_agent import DynamicPartitionAgent

        return DynamicPartitionAgent()
    if scheme == "cap_fifo":
        from agents.carbon_aware_fifo_agent import CarbonAgent

        return CarbonAgent(exec_cap=args.exec_cap, carbon_schedule=carbon)
    import tensorflow as tf
    from agents.actor_agent import ActorAgent
    from agents.carbon_aware_actor_agent import CarbonActorAgent
    from agents.pcaps_actor_agent import PCAPSAgent

    tf.compat.v1.reset_default_graph()
    tf.compat.v1.set_random_seed(seed)
    network = (
        tf.compat.v1.Session(), args.node_input_dim, args.job_input_dim, args.hid_dims,
        args.output_dim, args.max_depth, range(1, args.exec_cap + 1),
    )  # fmt: skip
    if scheme == "decima":
        return ActorAgent(*network)
    return {"pcaps": PCAPSAgent, "cap_decima": CarbonActorAgent}[scheme](*network, carbon)


def run(modules, request: dict) -> dict | None:
    np, env_module, _, generator = modules
    hours, seed = request["hours"], request["seed"]
    carbon = {HOUR_MS * hour: value for hour, value in enumerate(hours)}

    def generate_jobs(rng, timeline, wall_time):
        from param import args

        there = env_module.OrderedSet()
        for size, query, arrival_ms in request["jobs"]:
            job = generator.load_job(args.job_folder, size, str(query), wall_time, rng)
            job.start_time = arrival_ms
            if arrival_ms == 0:
                job.arrived = True
                there.add(job)
            else:
                timeline.push(arrival_ms, job)
        return there

    env_module.generate_jobs = generate_jobs
    np.random.seed(seed)
    environment = env_module.Environment(carbon_schedule=carbon)
    environment.seed(seed)
    environment.reset()
    agent = agent_of(request["scheme"], carbon, seed)
    seen, is_done, begun = environment.observe(), False, time.process_time()
    while not is_done:
        stage, executors, *is_held = agent.get_action(seen)
        seen, _, is_done = environment.step(stage, executors, carbon_aware=any(is_held))
        if time.process_time() - begun > MOST_SECONDS:
            return None
    return measured(np, environment, hours)


def measured(np, environment, hours) -> dict:
    work = grams = 0.0
    jobs = list(environment.finished_job_dags)
    for task in (task for job in jobs for stage in job.nodes for task in stage.tasks):
        at, end = task.start_time, task.finish_time
        work += end - at
        while at < end:
            hour = int(at // HOUR_MS)
            until = min(end, (hour + 1) * HOUR_MS)
            grams += (until - at) * hours[min(hour, len(hours) - 1)]
            at = until
    times = [job.completion_time - job.start_time for job in jobs]
    return {
        "jobs": len(jobs), "work_s": work / 1e3, "grams": grams / 1e3,
        "jct_s": float(np.mean(times)) / 1e3, "ect_s": float(environment.wall_time.curr_time) / 1e3,
    }  # fmt: skip


def main() -> None:
    program, jobs, how = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what it prints is not an answer
    modules = prepare(program, jobs)
    if how == "warm":
        keep_warm(modules[2])
    for line in sys.stdin:
        print(json.dumps(run(modules, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
