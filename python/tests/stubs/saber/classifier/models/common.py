def get_predictor(weights, config, gpu_id):
    return weights, config, gpu_id
